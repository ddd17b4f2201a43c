package rows

import "time"

// Between returns the time from one moment in a row to another, both in microseconds. Anybody who
// may write to the table can put any number there. So Between returns 0 if to is not after from,
// and at most a hundred years, to which times can be added without an overflow.
func Between(from, to int64) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	switch d := to - from; {
	case to <= from:
		return 0
	case d < 0 || d > most.Microseconds(): // the difference may overflow, too
		return most
	default:
		return time.Duration(d) * time.Microsecond
	}
}
