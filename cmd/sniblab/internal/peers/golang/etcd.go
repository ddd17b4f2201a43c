package golang

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/sniblock/snib/cmd/sniblab/internal/target"
)

// openEtcd has the Mutex of etcd's package concurrency. All holds of a process share a session, as
// in the examples of the package, until it ends. The token is the revision of the grant.
func openEtcd(ctx context.Context, m target.Message) (target.Locker, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{strings.TrimPrefix(m.URL, "etcd://")}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	s := &etcdSessions{client: client, seconds: int(ttl(m) / time.Second)}
	if _, err := s.get(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context, wait time.Duration) (*target.Hold, error) {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		session, err := s.get(waiting)
		if err != nil {
			return nil, err
		}
		mutex := concurrency.NewMutex(session, "/"+m.Name)
		switch err := mutex.Lock(waiting); {
		case err != nil && errors.Is(waiting.Err(), context.DeadlineExceeded):
			return nil, target.ErrDenied
		case err != nil:
			return nil, err
		}
		return &target.Hold{Token: uint64(mutex.Header().Revision), Lost: session.Done(), Release: mutex.Unlock}, nil
	}, nil
}

// etcdSessions has the session of a process, and opens another one when it has ended.
type etcdSessions struct {
	client  *clientv3.Client
	seconds int

	mu      sync.Mutex
	session *concurrency.Session
}

func (s *etcdSessions) get(ctx context.Context) (*concurrency.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		select {
		case <-s.session.Done():
		default:
			return s.session, nil
		}
	}
	// The lease's context must outlive the wait for it, so the grant has a context of its own.
	grant, err := s.client.Grant(ctx, int64(s.seconds))
	if err != nil {
		return nil, err
	}
	s.session, err = concurrency.NewSession(s.client, concurrency.WithTTL(s.seconds), concurrency.WithLease(grant.ID))
	return s.session, err
}
