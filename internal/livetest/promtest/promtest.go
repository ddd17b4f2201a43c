// Package promtest starts servers of Prometheus for tests, and runs promtool.
package promtest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

// Tool runs promtool, the checker of Prometheus.
func Tool(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), livetest.Binary(t, "prometheus", "promtool"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A Server is a Prometheus.
type Server struct {
	t   *testing.T
	url string
}

// Start starts a Prometheus that evaluates the rules in a file and scrapes addresses, twice a
// second.
func Start(t *testing.T, rules string, targets ...string) *Server {
	t.Helper()
	path := livetest.Binary(t, "prometheus", "prometheus")
	rules, err := filepath.Abs(rules)
	livetest.Must(t, err, "path of the rules")
	addrs, err := json.Marshal(targets)
	livetest.Must(t, err, "encode the targets")
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 200ms}\n"+
		"rule_files: [%q]\nscrape_configs: [{job_name: test, static_configs: [{targets: %s}]}]\n", rules, addrs)
	livetest.Must(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600), "configure prometheus")
	p := livetest.Start(t, livetest.Command{
		Name: "prometheus", Path: path, Dir: dir,
		Args: func(port int) []string {
			return []string{
				"--config.file=prometheus.yml", "--storage.tsdb.path=data",
				"--web.listen-address=" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			}
		},
		Ready: func(addr string) error {
			answer, err := http.Get("http://" + addr + "/-/ready")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s", answer.Status)
			}
			return nil
		},
	})
	return &Server{t, "http://" + p.Addr()}
}

// Get sends a request to the API and decodes the answer.
func (s *Server) Get(path string, query url.Values, into any) error {
	answer, err := http.Get(s.url + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var all struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		return err
	}
	if all.Status != "success" {
		return fmt.Errorf("%s: %s", all.Status, all.Error)
	}
	return json.Unmarshal(all.Data, into)
}

// Await waits until an expression has a result.
func (s *Server) Await(expr string) {
	s.t.Helper()
	livetest.Await(s.t, expr, func() error {
		var data struct{ Result []json.RawMessage } // a series each
		err := s.Get("/api/v1/query", url.Values{"query": {expr}}, &data)
		if err == nil && len(data.Result) == 0 {
			err = fmt.Errorf("it has no result")
		}
		return err
	})
}

// AwaitRules waits until all rules have been evaluated, without an error, and returns their number.
func (s *Server) AwaitRules() (n int) {
	s.t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	// They are not all evaluated at the same time.
	livetest.Await(s.t, "evaluation of all rules", func() error {
		if err := s.Get("/api/v1/rules", nil, &rules); err != nil {
			return err
		}
		n = 0
		for _, group := range rules.Groups {
			for _, r := range group.Rules {
				if n++; r.Health != "ok" {
					return fmt.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
				}
			}
		}
		return nil
	})
	return n
}

// A Dashboard is the part of Grafana's model that tests need.
type Dashboard struct {
	Title  string
	Panels []struct {
		ID          int
		Type, Title string
		Targets     []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

// ReadDashboard reads a dashboard from a file. It checks that panels have ids of their own and show
// something.
func ReadDashboard(t *testing.T, name string) *Dashboard {
	t.Helper()
	data, err := os.ReadFile(name)
	livetest.Must(t, err, "read the dashboard")
	var d Dashboard
	livetest.Must(t, json.Unmarshal(data, &d), "%s", name)
	ids := map[int]string{}
	for _, p := range d.Panels {
		if other, taken := ids[p.ID]; taken {
			t.Errorf("%s: panels %q and %q have the same id", name, other, p.Title)
		}
		ids[p.ID] = p.Title
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s: panel %q shows nothing", name, p.Title)
		}
	}
	return &d
}

// AwaitPanels waits until each expression of a dashboard has a result. It returns the number of
// expressions. Fill replaces the dashboard's variables.
func (s *Server) AwaitPanels(d *Dashboard, fill *strings.Replacer) (n int) {
	s.t.Helper()
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			n++
			expr := fill.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				s.t.Errorf("panel %q has an unknown variable: %s", p.Title, expr)
				continue
			}
			s.Await(expr)
		}
	}
	return n
}
