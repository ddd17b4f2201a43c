package wire

import "time"

// An Audit has the latest events of the audit log of a replica, the latest first.
type Audit struct {
	Events []AuditEvent `json:"events"`
}

// An AuditEvent is one line of the audit log. It contains no id of a grant and no credential.
type AuditEvent struct {
	Time      time.Time `json:"time"`
	Event     string    `json:"event"`               // "break", "reserve" or "refused"
	Outcome   string    `json:"outcome,omitempty"`   // "begun", "done", "failed" or "unknown"
	Who       string    `json:"who,omitempty"`       // the principal; "" if nobody was authenticated
	Remote    string    `json:"remote"`              // the address of the client
	Verb      string    `json:"verb,omitempty"`      // the right that the request needs
	Op        string    `json:"op,omitempty"`        // what the request asks for
	Namespace string    `json:"namespace,omitempty"` // of the principal
	Name      string    `json:"name,omitempty"`      // the lock or the resource, as the principal calls it
	Token     uint64    `json:"token,omitempty,string"`
	Reason    string    `json:"reason,omitempty"` // of a break or reservation: what the client said; of a refusal: ours
	// refusals before this line that have none, because there were too many
	LeftOut int `json:"left_out,omitempty"`
}
