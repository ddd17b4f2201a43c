#!/usr/bin/perl
# A target in Perl, with nothing but Perl's own modules: a key of Redis with a TTL and fencing
# tokens. It was written from docs/lab.md alone, to see whether the page suffices:
#
#     snib lab run --target 'perl ./lock.pl'
use strict;
use warnings;
use IO::Socket::INET;
use JSON::PP;
use Time::HiRes qw(sleep clock_gettime CLOCK_BOOTTIME);

$| = 1;    # standard output must not be buffered
my $json = JSON::PP->new->canonical;

sub say_message { print $json->encode({@_}), "\n" }

my $start = $json->decode(scalar <STDIN>);
my ($address) = $start->{url} =~ m{^redis://(.*)$} or die "unknown URL $start->{url}\n";
my $socket;

# command sends a command and returns its answer. It connects again if that fails.
sub command {
    $socket //= IO::Socket::INET->new(PeerAddr => $address, Timeout => 1) or die "no connection to $address\n";
    print $socket "*" . @_ . "\r\n" . join("", map { "\$" . length($_) . "\r\n$_\r\n" } @_);
    my $line = <$socket>;
    unless (defined $line) { undef $socket; die "the connection to $address broke\n" }
    $line =~ s/\r\n$//;
    my ($type, $rest) = $line =~ /^(.)(.*)$/;
    die "$rest\n" if $type eq "-";
    return $type eq "\$" && $rest < 0 ? undef : $rest if $type ne "\$" || $rest < 0;
    read($socket, my $text, $rest + 2);
    return substr($text, 0, $rest);
}

# The lock is a key with a TTL, whose value is the token of its holder. The counter of the tokens
# stays when the lock is gone.
my $take = <<'LUA';
if redis.call('exists', KEYS[1]) == 1 then return 0 end
local token = redis.call('incr', KEYS[2])
redis.call('set', KEYS[1], token, 'PX', ARGV[1])
return token
LUA
my $free = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

my ($token, $end) = (0, 0);

sub acquire {
    my ($wait) = @_;
    my $until = clock_gettime(CLOCK_BOOTTIME) + $wait / 1000;
    do {
        $end = clock_gettime(CLOCK_BOOTTIME) + $start->{ttl} / 1000;    # the time before the request
        return 1 if $token = command("EVAL", $take, 2, $start->{name}, "$start->{name}:token", $start->{ttl});
        sleep 0.01;
    } while (clock_gettime(CLOCK_BOOTTIME) < $until);
    return 0;
}

command("PING");
say_message(type => "ready");
while (defined(my $line = <STDIN>)) {
    my $message = $json->decode($line);
    my ($type, $id) = @$message{qw(type id)};
    eval {
        if ($type eq "acquire") {
            my $got = acquire($message->{wait});
            say_message(id => $id, $got ? (type => "granted", token => $token + 0) : (type => "denied"));
        }
        elsif ($type eq "held") {
            my $held = clock_gettime(CLOCK_BOOTTIME) < $end ? JSON::PP::true : JSON::PP::false;
            say_message(type => "held", id => $id, held => $held);
        }
        else {
            command("EVAL", $free, 1, $start->{name}, $token);
            say_message(type => "released", id => $id);
        }
        1;
    } or say_message(type => "error", id => $id, error => "$@");
}
