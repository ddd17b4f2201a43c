package access

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// The settings of a policy file have these types. Their errors say what would be right.
type (
	textValue     string
	listValue     []string
	countValue    int
	rateValue     float64
	durationValue time.Duration
	endValue      time.Time
	digestValue   [digestSize]byte
	claimsValue   map[string][]string
)

// UnmarshalTOML implements [toml.Unmarshaler].
func (v *textValue) UnmarshalTOML(data any) error {
	text, ok := data.(string)
	if !ok || text == "" {
		return errors.New(`this must be text in quotes, and not empty`)
	}
	*v = textValue(text)
	return nil
}

// UnmarshalTOML implements [toml.Unmarshaler].
func (v *listValue) UnmarshalTOML(data any) error {
	list, err := texts(data)
	*v = list
	return err
}

// texts returns the texts of a list.
func texts(data any) ([]string, error) {
	items, ok := data.([]any)
	if !ok || len(items) == 0 {
		return nil, errors.New(`this must be a list of texts, such as ["one", "two"], and not empty`)
	}
	list := make([]string, 0, len(items))
	for _, item := range items {
		text, ok := item.(string)
		if !ok {
			return nil, fmt.Errorf(`the list contains %v, which is not text; write it in quotes`, item)
		}
		list = append(list, text)
	}
	return list, nil
}

// UnmarshalTOML implements [toml.Unmarshaler].
func (v *countValue) UnmarshalTOML(data any) error {
	n, ok := data.(int64)
	if !ok || n < 1 || n > 1<<30 {
		return errors.New("this must be a number from 1 up; leave it out if there is no limit")
	}
	*v = countValue(n)
	return nil
}

// UnmarshalTOML implements [toml.Unmarshaler].
func (v *rateValue) UnmarshalTOML(data any) error {
	switch n := data.(type) {
	case int64:
		*v = rateValue(n)
	case float64:
		*v = rateValue(n)
	}
	if !(*v > 0 && *v <= 1<<30) {
		return errors.New("this must be a number above 0: the requests that are allowed in each second")
	}
	return nil
}

// UnmarshalTOML implements [toml.Unmarshaler].
func (v *durationValue) UnmarshalTOML(data any) error {
	text, _ := data.(string)
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New(`this must be a duration such as "90s", "15m" or "2h"`)
	}
	*v = durationValue(d)
	return nil
}

// UnmarshalTOML implements [toml.Unmarshaler]. A date without a time ends when that day begins, in
// UTC, and a time without a zone is refused: which moment it is would depend on the host.
func (v *endValue) UnmarshalTOML(data any) error {
	end, ok := data.(time.Time)
	if !ok {
		return errors.New("this must be a date or a time without quotes, such as 2027-01-31 or 2027-01-31T18:00:00Z")
	}
	switch end.Location().String() {
	case "date-local":
		end = time.Date(end.Year(), end.Month(), end.Day(), 0, 0, 0, 0, time.UTC)
	case "datetime-local", "time-local":
		return errors.New("this time has no zone; add Z for UTC, as in 2027-01-31T18:00:00Z")
	}
	*v = endValue(end)
	return nil
}

// UnmarshalTOML implements [toml.Unmarshaler].
func (v *digestValue) UnmarshalTOML(data any) error {
	text, _ := data.(string)
	digest, err := hex.DecodeString(text)
	if err != nil || len(digest) != digestSize {
		return errors.New("this must be the SHA-256 of a token, 64 hexadecimal digits; snib serve token NAME prints it")
	}
	copy(v[:], digest)
	return nil
}

// UnmarshalTOML implements [toml.Unmarshaler].
func (v *claimsValue) UnmarshalTOML(data any) error {
	claims, ok := data.(map[string]any)
	if !ok || len(claims) == 0 {
		return errors.New(`this must be a table of claims, such as { repository = "example/shop" }; without one, everybody whom the issuer knows would be admitted`)
	}
	*v = claimsValue{}
	for name, want := range claims {
		if text, ok := want.(string); ok {
			want = []any{text}
		}
		list, err := texts(want)
		if err != nil {
			return fmt.Errorf("claim %q: it must be text, or a list of texts", name)
		}
		for _, pattern := range list {
			if pattern == "" || pattern == "*" {
				return fmt.Errorf("claim %q: %q says nothing about its value", name, pattern)
			}
		}
		(*v)[name] = list
	}
	return nil
}
