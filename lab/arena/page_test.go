package arena

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestPage checks that docs/lab.md has the faults, the stores and the museum as the code has them.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	var faults, stores, museum strings.Builder
	faults.WriteString("| fault | meaning | needs |\n| --- | --- | --- |\n")
	for _, f := range Faults() {
		fmt.Fprintf(&faults, "| `%s` | %s | %s |\n", f.Name, f.About, f.Needs)
	}
	stores.WriteString("| `--store` | what the lab starts | `url` |\n| --- | --- | --- |\n")
	for _, s := range storeTypes() {
		url := strings.Replace(s.url, "ADDRS", "127.0.0.1:PORT", 1)
		if n := servedBy[s.kind]; n > 1 {
			url = strings.Replace(s.url, "ADDRS", "127.0.0.1:PORT,…", 1)
		}
		switch {
		case s.kind == File:
			url = "the path"
		case url == "":
			url = "empty"
		default:
			url = "`" + url + "`"
		}
		fmt.Fprintf(&stores, "| `%s` | %s | %s |\n", s.kind, s.about, url)
	}
	museum.WriteString("| control | what is wrong | store | faults | verdict | source |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, c := range Museum(command) {
		fmt.Fprintf(&museum, "| `%s` | %s. %s | %s | %s | `%s` | <%s> |\n", c.Name, c.Title, c.Guilt, c.Store, strings.Join(c.Faults, ", "), c.Want, c.Source)
	}
	for _, table := range []string{faults.String(), stores.String(), museum.String()} {
		if !strings.Contains(string(page), "\n"+table+"\n") {
			t.Errorf("docs/lab.md lacks this table:\n%s", table)
		}
	}
}

// servedBy has, for stores with several addresses, how many there are.
var servedBy = map[StoreKind]int{Sentinel: 3, Cluster: 6, Redlock: 3, EtcdCluster: 3, ZooKeepers: 3}
