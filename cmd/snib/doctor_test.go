package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// wantUnmet checks what snib doctor finds not to be as it should, or worth a note: as "verdict check".
func wantUnmet(t *testing.T, url string, want ...string) {
	t.Helper()
	out, code := snib(t, "doctor", url, "-o", "json")
	var doc struct {
		Schema, Backend string
		Checks          []struct{ Check, Verdict, Value, Advice string }
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Schema != "snib.doctor/1" || doc.Backend == "" || len(doc.Checks) < 4 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	var got []string
	ails := 0
	for _, c := range doc.Checks {
		if c.Verdict != "ok" {
			got = append(got, c.Verdict+" "+c.Check)
		}
		if c.Verdict == "unmet" {
			ails = 1
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || code != ails {
		t.Errorf("exit code %d, findings %q, want %q: %s", code, got, want, out)
	}
	if strings.Contains(out, pgtest.Password) || strings.Contains(out, mysqltest.Password) {
		t.Errorf("a password is shown: %s", out)
	}
}

// TestDoctorPostgres examines servers that are as they should be, and others.
func TestDoctorPostgres(t *testing.T) {
	store(t)
	sound := pgtest.Start(t)
	wantUnmet(t, sound.URL())
	wantUnmet(t, sound.URL()+"&options=-c%20synchronous_commit%3Doff", "unmet synchronous_commit")
	wantUnmet(t, pgtest.Start(t, "fsync=off", "full_page_writes=off").URL(), "unmet fsync", "unmet full_page_writes")
	t.Run("Pooler", func(t *testing.T) {
		wantUnmet(t, pgtest.Pool(t, sound, "session").URL(), "note pooler")
	})
}

// TestDoctorMySQL likewise.
func TestDoctorMySQL(t *testing.T) {
	store(t)
	wantUnmet(t, mysqlURL(mysqltest.Start(t).Addr()))
	wantUnmet(t, mysqlURL(mysqltest.Start(t, "innodb-flush-log-at-trx-commit=2").Addr()), "unmet innodb_flush_log_at_trx_commit")
}

// TestDoctorReplicas examines a master that would go on granting locks without its replica.
func TestDoctorReplicas(t *testing.T) {
	store(t)
	s := redistest.Sentinel(t)
	used(t, s.Master())
	wantUnmet(t, "redis+sentinel://"+strings.Join(s.Sentinels(), ",")+"/"+s.MasterName(), "note persistence", "unmet min-replicas-to-write")
}
