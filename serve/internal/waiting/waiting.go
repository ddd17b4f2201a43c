// Package waiting decides what becomes of an acquisition that goes through a replica. It has no
// clock, no network and no lock: a [State] takes in an [Event], and says what to do.
package waiting

// A Phase is how far an acquisition is.
type Phase uint8

const (
	Queued     Phase = iota // behind another one of this replica
	Asking                  // the store is asked for the lock
	Granted                 // the store has granted the lock, and no request of the client is here
	Confirming              // the grant becomes final, for a request of the client
	Releasing               // the grant is released, because nobody wants it
	Ended                   // nothing is left of it in this replica
)

// A Cause says why nobody wants an acquisition any more. A greater one overrides another.
type Cause uint8

const (
	Wanted    Cause = iota
	Abandoned       // the client did not send its request again in time
	Drained         // the service ends
	Withdrawn       // the client has said so: it must get nothing
)

// A State is what a replica knows of one acquisition.
type State struct {
	Phase Phase
	Waits bool // it may wait for the lock
	Told  bool // the store has said why it does not grant the lock

	Polled bool // a request of the client waits here
	Over   bool // that request has waited for as long as it may

	Final bool // other replicas may hand the grant out, so only the client may end it
	Shown bool // the store shows the holder of the request, and not one that is pending
	Again bool // another request has come since the grant is being confirmed for one

	GaveUp Cause
}

// An Event is what happens to an acquisition.
type Event uint8

const (
	Turn           Event = iota // it is the first in its queue
	PollCame                    // a request of the client; one that waits already is answered by the caller
	PollOver                    // the request has waited for as long as it may
	PollGone                    // the connection of the request has ended
	StoreTold                   // why the lock is not granted
	StoreGranted                // to a request that is not given up: the grant is final
	StorePromised               // granted, to a request that may be given up: the grant is pending
	StoreFailed                 // with an error
	Confirmed                   // the grant is final, and young enough for the request
	ConfirmFailed               // the store may show either holder
	GrantLost                   // it had ended before it was confirmed
	Released                    // or its release has failed, and it lapses
	ClientGone                  // no request has come in time
	ServiceEnds                 // and gives up its places
	ClientWithdrew              // the acquisition
)

// An Action is what to do next.
type Action uint8

const (
	Ask             Action = iota // the store for the lock
	Confirm                       // make the grant final
	Release                       // the grant, and let the client begin anew
	Requeue                       // behind the first of the queue
	Dequeue                       // leave the queue
	Cancel                        // the request in the store, if it waits there
	StartTimer                    // for the client's next request
	StopTimer                     //
	AnswerGrant                   // the request that waits, with the hold
	AnswerError                   // with the store's error
	AnswerQueued                  // that the place is kept, or why the store grants nothing
	AnswerWithdrawn               // that the client has withdrawn it
	End                           // forget the acquisition
)

// On returns the state after an event, and what to do, in this order.
func (s State) On(e Event) (State, []Action) {
	switch e {
	case Turn:
		s.Phase = Asking
		return s, []Action{Ask}
	case PollCame:
		return s.pollCame()
	case PollOver:
		s.Over = true
		return s.answerWhenTold()
	case StoreTold:
		s.Told = true
		return s.answerWhenTold()
	case PollGone:
		s.Polled = false
		if s.GaveUp == Wanted {
			return s, []Action{StartTimer}
		}
	case StoreGranted, StorePromised:
		return s.granted(e == StoreGranted)
	case StoreFailed:
		return s.end(AnswerError)
	case Confirmed:
		s.Final, s.Shown = true, true
		return s.confirmed()
	case ConfirmFailed:
		s.Final = true
		return s.confirmFailed()
	case GrantLost:
		return s.lost()
	case Released:
		return s.end(AnswerQueued)
	case ClientGone:
		if !s.Polled {
			return s.giveUp(Abandoned)
		}
	case ServiceEnds:
		if s.Waits || !s.Polled { // otherwise it is answered soon
			return s.giveUp(Drained)
		}
	case ClientWithdrew:
		return s.giveUp(Withdrawn)
	}
	return s, nil
}

func (s State) pollCame() (State, []Action) {
	do := []Action{StopTimer}
	s.Polled, s.Over = true, false
	switch {
	case s.GaveUp == Withdrawn:
		s.Polled = false
		do = append(do, AnswerWithdrawn)
	case s.Phase == Granted:
		s.Phase = Confirming
		do = append(do, Confirm)
	case s.Phase == Confirming:
		s.Again = true
	}
	return s, do
}

// answerWhenTold ends a request that has waited for long enough, once the store has said that there
// is something to wait for.
func (s State) answerWhenTold() (State, []Action) {
	if s.Polled && s.Over && s.Told && s.Waits && s.Phase <= Asking {
		s.Polled = false
		return s, []Action{AnswerQueued, StartTimer}
	}
	return s, nil
}

func (s State) granted(final bool) (State, []Action) {
	s.Final, s.Shown = final, final
	switch {
	case s.GaveUp == Withdrawn, s.GaveUp != Wanted && !final:
		return s.release()
	case s.Polled:
		s.Phase = Confirming
		return s, []Action{Confirm}
	case final: // the client gets the hold by its next request, at any replica; else it lapses
		return s.end(AnswerQueued)
	}
	s.Phase = Granted
	return s, nil
}

func (s State) confirmed() (State, []Action) {
	switch {
	case s.GaveUp == Withdrawn:
		return s.release()
	case s.Polled && s.Again: // the lease must be younger than that request
		s.Again = false
		return s, []Action{Confirm}
	}
	return s.end(AnswerGrant) // a client that has gone finds the hold by its next request
}

func (s State) confirmFailed() (State, []Action) {
	switch {
	case s.GaveUp == Withdrawn:
		return s.release()
	case s.GaveUp != Wanted:
		return s.end(AnswerError)
	case s.Polled && s.Again:
		s.Again = false
		return s, []Action{Confirm}
	}
	s.Phase, s.Again = Granted, false
	if !s.Polled {
		return s, nil
	}
	s.Polled = false
	return s, []Action{AnswerError, StartTimer}
}

func (s State) lost() (State, []Action) {
	s.Told, s.Final, s.Shown, s.Again = false, false, false, false
	switch {
	case s.GaveUp != Wanted:
		return s.end(AnswerQueued)
	case s.Waits:
		s.Phase = Queued
		return s, []Action{Requeue}
	}
	s.Phase = Asking // the lock may be free
	return s, []Action{Ask}
}

func (s State) giveUp(why Cause) (State, []Action) {
	if s.Phase >= Releasing {
		return s, nil
	}
	s.GaveUp = max(s.GaveUp, why)
	do := []Action{Cancel, StopTimer}
	if s.Polled {
		s.Polled = false
		do = append(do, map[Cause]Action{Abandoned: AnswerQueued, Drained: AnswerQueued,
			Withdrawn: AnswerWithdrawn}[s.GaveUp])
	}
	var more []Action
	switch {
	case s.Phase == Queued:
		s, more = s.end(AnswerQueued)
		do = append(do, Dequeue)
	case s.Phase == Granted && (!s.Final || s.GaveUp == Withdrawn):
		s, more = s.release()
	case s.Phase == Granted:
		s, more = s.end(AnswerQueued)
	}
	return s, append(do, more...) // whoever asks or confirms looks at GaveUp
}

func (s State) release() (State, []Action) {
	s.Phase = Releasing
	return s, []Action{Release}
}

// end ends the acquisition, and answers the request that waits, if there is one.
func (s State) end(answer Action) (State, []Action) {
	s.Phase = Ended
	if s.Polled {
		s.Polled = false
		return s, []Action{answer, End}
	}
	return s, []Action{End}
}
