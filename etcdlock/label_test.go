package etcdlock

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestLabelDuringRenewal changes the label while a renewal is under way that writes the old one. As
// nobody knows which of the two etcd executes last, the next renewal writes the new one again.
func TestLabelDuringRenewal(t *testing.T) {
	l := &lease{s: &session{}, info: info{Label: "old"}}
	_, sent := l.checkOp(recordIfSpace)
	l.info.Label = "new"
	held := &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseTxn{
		ResponseTxn: &etcdserverpb.TxnResponse{Succeeded: true},
	}}
	if !l.recordCheck(held, sent) || l.infoRecorded {
		t.Errorf("a renewal that wrote the label %q says that the key has %q", sent.Label, l.info.Label)
	}
	_, sent = l.checkOp(recordIfSpace)
	if !l.recordCheck(held, sent) || !l.infoRecorded {
		t.Error("a renewal that wrote the present label leaves it to the next one")
	}
}
