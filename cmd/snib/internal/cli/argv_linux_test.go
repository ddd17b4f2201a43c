package cli

import "testing"

func TestPasswords(t *testing.T) {
	tests := []struct{ arg, want string }{
		{"run", "run"},
		{"a:b@c", "a:b@c"},
		{"redis://host:6379/0", "redis://host:6379/0"},
		{"redis://user@host:6379", "redis://user@host:6379"},
		{"redis://user:secret@host:6379", "redis://user:xxxxxx@host:6379"},
		{"--url=redis://:s:e@c/r?e#t@host", "--url=redis://:xxxxxxxxxxx@host"},
		{
			"-vuredis+sentinel://u:p@h/m?sentinel-password=secret&dial-timeout=1s&password=x1",
			"-vuredis+sentinel://u:x@h/m?sentinel-password=xxxxxx&dial-timeout=1s&password=xx",
		},
		{"redis://h/0?sentinel-password=secret", "redis://h/0?sentinel-password=xxxxxx"},
		{"redis://h/0?password-file=secret", "redis://h/0?password-file=secret"},
	}
	for _, tt := range tests {
		b := []byte(tt.arg)
		for _, at := range findPasswords(tt.arg) {
			for i := at[0]; i < at[1]; i++ {
				b[i] = 'x'
			}
		}
		if got := string(b); got != tt.want {
			t.Errorf("without its passwords %s is %s, want %s", tt.arg, got, tt.want)
		}
	}
}
