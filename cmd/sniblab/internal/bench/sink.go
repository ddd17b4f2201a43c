package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// A sink writes tables in one format, and saves them with charts.
type sink struct {
	w       io.Writer
	format  string
	dir     string // to save in; "" if nothing is saved
	about   string // describes the machine and the versions
	command string // that was given
	tables  []*table
	skipped []string // scenarios, each with the reason
}

// begin writes the conditions, which are in each line of JSON.
func (s *sink) begin(about, command string) {
	s.about, s.command = about, command
	if s.format != "json" {
		fmt.Fprintf(s.w, "%s\n%s\n\n", command, about)
	}
}

// put writes the tables of a scenario, and saves them.
func (s *sink) put(tables []*table) error {
	s.tables = append(s.tables, tables...)
	if s.format == "json" {
		for _, t := range tables {
			if err := json.NewEncoder(s.w).Encode(t.jsonValue(s.about)); err != nil { // one table per line
				return err
			}
		}
	} else {
		scenario := tables[0].scenario
		fmt.Fprintf(s.w, "%s: %s\n%s\n\n", scenario.name, scenario.about, storesOf(tables))
		for _, t := range tables {
			t.write(s.w, s.format)
		}
	}
	return s.save(tables)
}

// storesOf says on which servers tables were measured.
func storesOf(tables []*table) string {
	var all []string
	for _, t := range tables {
		for _, r := range t.runs {
			if r.store != "" && !slices.Contains(all, r.store) {
				all = append(all, r.store)
			}
		}
	}
	if len(all) == 0 {
		return "No servers."
	}
	return "On the same machine: " + strings.Join(all, "; ") + "."
}

// save saves the tables of a scenario in Markdown, and a chart.
func (s *sink) save(tables []*table) error {
	if s.dir == "" {
		return nil
	}
	var page, chart bytes.Buffer
	scenario := tables[0].scenario
	s.writeHead(&page, scenario.name, scenario.about, storesOf(tables))
	for _, t := range tables {
		t.write(&page, "markdown")
	}
	fmt.Fprint(&page, "The rows are:\n\n")
	for _, p := range scenario.allPeers() {
		fmt.Fprintf(&page, "- %s: %s\n", p.name, p.about)
	}
	notes := append([]string{s.command}, wrap(s.about+" "+storesOf(tables), " ", chartColumns)...)
	if err := writeChart(&chart, tables, notes); err != nil {
		return err
	}
	return s.saveFiles(scenario.name, page.Bytes(), chart.Bytes())
}

// end writes the summary of all scenarios, and saves it.
func (s *sink) end() error {
	if s.format == "json" || len(s.tables) == 0 {
		return nil
	}
	sum := newSummary(s.tables, s.skipped)
	sum.write(s.w, s.format)
	if s.dir == "" {
		return nil
	}
	var page, chart bytes.Buffer
	s.writeHead(&page, "summary", "What snib is beside what it is compared with, in each scenario: its peer's best, or the least that a lock can cost.", "")
	sum.write(&page, "markdown")
	if err := writeSummaryChart(&chart, sum.ratios, append([]string{s.command}, wrap(s.about, " ", chartColumns)...)); err != nil {
		return err
	}
	return s.saveFiles("summary", page.Bytes(), chart.Bytes())
}

// writeHead writes the beginning of a page: what it is about, the conditions, and the chart.
func (s *sink) writeHead(w io.Writer, name, about, stores string) {
	fmt.Fprintf(w, "# %s\n\n%s\n\n`%s`\n\n%s %s\n\n![chart](%s.svg)\n\n", name, about, s.command, s.about, stores, name)
}

func (s *sink) saveFiles(name string, page, chart []byte) error {
	return errors.Join(
		os.WriteFile(filepath.Join(s.dir, name+".md"), page, 0o644),
		os.WriteFile(filepath.Join(s.dir, name+".svg"), chart, 0o644))
}

// wrap breaks a text at separators into lines of at most a number of characters, if possible.
func wrap(text, separator string, most int) (lines []string) {
	for part := range strings.SplitSeq(text, separator) {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last]+separator+part) <= most {
			lines[last] += separator + part
		} else {
			lines = append(lines, part)
		}
	}
	return lines
}
