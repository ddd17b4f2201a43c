package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
	"github.com/sniblock/snib/serve/access"
)

// accessFlags are the flags of snib serve that say who may do what.
type accessFlags struct {
	tls      access.TLSFiles
	policy   string
	auditLog string
}

func (f *accessFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.policy, "policy", "", "the `FILE` that says who may do what")
	flags.StringVar(&f.auditLog, "audit-log", "", "append breaks, reservations and refusals to `FILE` (default: standard error)")
	flags.StringVar(&f.tls.Cert, "tls-cert", "", "serve with TLS; the certificate is in `FILE`")
	flags.StringVar(&f.tls.Key, "tls-key", "", "the key of the certificate is in `FILE`")
	flags.StringVar(&f.tls.ClientCA, "client-ca", "", "believe the client certificates that an authority in `FILE` has signed")
}

// check reports flags that can't be right together.
func (f *accessFlags) check(listen string) error {
	_, isSocket := socketPath(listen)
	switch {
	case f.policy == "" && !isSocket && !wire.IsLoopback(listen):
		return usagef("--listen %s is not a loopback address, so --policy must say who may do what; see docs/serve-access.md", printable(listen))
	case (f.tls.Cert == "") != (f.tls.Key == ""):
		return usagef("--tls-cert and --tls-key belong together; give both")
	case f.tls.ClientCA != "" && f.tls.Cert == "":
		return usagef("--client-ca needs TLS; give --tls-cert and --tls-key, too")
	case f.tls.ClientCA != "" && f.policy == "":
		return usagef("--client-ca needs a --policy that admits certificates")
	}
	return nil
}

// A serviceAccess is what the flags ask for, opened.
type serviceAccess struct {
	audit  *access.AuditLog
	policy *access.Access       // nil: only clients on this host
	certs  *access.Certificates // nil: without TLS

	// The policy, or what admits those clients.
	serve.Authorizer
	recent     func(p *serve.Principal, n int) []wire.AuditEvent // of the audit log
	longestTTL time.Duration                                     // the greatest max-ttl; zero: none
}

// open reads the files. Without one for the audit log, that is written to stderr.
func (f *accessFlags) open(stderr io.Writer) (*serviceAccess, error) {
	s := &serviceAccess{}
	if f.tls.Cert != "" {
		certs, err := access.LoadCertificates(f.tls)
		if err != nil {
			return nil, failf(exitConfig, "%v", err)
		}
		s.certs = certs
	}
	s.audit = access.NewAuditLog(stderr)
	if f.auditLog != "" {
		audit, err := access.OpenAuditLog(f.auditLog)
		if err != nil {
			return nil, failf(exitConfig, "%v", err)
		}
		s.audit = audit
	}
	if f.policy == "" {
		local := access.NewLocal(s.audit)
		s.Authorizer, s.recent = local, local.Recent
		return s, nil
	}
	var err error
	s.policy, err = access.Load(f.policy, s.certs, s.audit)
	if err != nil {
		return nil, failf(exitConfig, "%v", err)
	}
	s.Authorizer, s.recent, s.longestTTL = s.policy, s.policy.Recent, s.policy.LongestTTL()
	return s, nil
}

// reload reads all files again. Where a file is bad, its old content stays in use.
func (s *serviceAccess) reload() error {
	var errs []error
	if s.certs != nil {
		errs = append(errs, s.certs.Reload())
	}
	if s.policy != nil {
		errs = append(errs, s.policy.Reload())
	}
	errs = append(errs, s.audit.Reopen())
	return errors.Join(errs...)
}

// reloadRequests returns the signals that ask for a reload. They are never reset: one that comes
// while the service starts or ends would kill it.
func reloadRequests() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	if len(reloadSignals) > 0 { // without a signal, Notify would relay all of them
		signal.Notify(signals, reloadSignals...)
	}
	return signals
}

// reloadOnSignal reloads at each signal until ctx is done.
func (s *serviceAccess) reloadOnSignal(ctx context.Context, a *app, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		if err := s.reload(); err != nil {
			a.messagef("reload: %s; what was loaded before stays", strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			a.infof("reload: done")
		}
	}
}

func (a *app) newServeTokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "token NAME",
		Short:   "make a token for clients of the lock service",
		Example: serveTokenExamples,
		Long:    serveTokenNotes,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !isTableName(args[0]) {
				return usagef("usage: snib serve token NAME; a name has letters, digits, - and _ only, such as ci or backup-1")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			token, line := access.NewToken()
			// The token is not beside other text, so that it can go into a file.
			a.messagef("add this to the policy, with verbs, and a namespace or prefixes:")
			_, _ = a.err.Write([]byte("\n[token." + args[0] + "]\n" + line + "\n\n"))
			return a.printf("%s\n", token)
		},
	}
}

// isTableName reports whether TOML takes a name without quotes.
func isTableName(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

const serveTokenExamples = `  snib serve token ci > ci.token      the lines for the policy: on the screen
  SNIB_API_TOKEN=$(cat ci.token) snib ls --url https://locks.example.com
`

const serveTokenNotes = `  The token is printed once, on standard output. The policy gets its SHA-256
  only, from which nobody can derive it. Whoever has the token has the rights
  that the policy gives to NAME.
`
