package redlock

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkScript measures what requests cost a node, by the CPU time that the server reports.
// Requests are sent alone, or in batches as they gather while the node is busy. Half of them
// take a lock, and half free one.
func BenchmarkScript(b *testing.B) {
	for _, size := range []int{1, 8, 32} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			s := newScriptServer(b, true)
			takes, frees := make([]string, size), make([]string, size)
			for i := range size {
				name := "invoices/" + strconv.Itoa(i)
				takes[i] = name + `: a 0123456789ABCDEF.` + strconv.Itoa(i) +
					`~ 10000 5 "id":"0123456789ABCDEF.1","pid":12345,"host":"db7.example"}`
				frees[i] = name + ": f 0123456789ABCDEF." + strconv.Itoa(i) + "~ 0"
			}
			s.run(takes...) // loads the script
			s.run(frees...)
			before := s.cpuSeconds(b)
			requests := 0
			for b.Loop() {
				half := size / 2 // half of the batch frees what the last batch took
				if size == 1 {
					s.run(takes...)
					s.run(frees...)
				} else {
					s.run(append(takes[:half:half], frees[half:]...)...)
					s.run(append(takes[half:len(takes):len(takes)], frees[:half]...)...)
				}
				requests += 2 * size
			}
			b.ReportMetric((s.cpuSeconds(b)-before)*1e6/float64(requests), "server-µs/request")
		})
	}
}

// cpuSeconds returns the CPU time that the server has used, in seconds.
func (s *scriptServer) cpuSeconds(t testing.TB) (sum float64) {
	for _, line := range strings.Fields(fmt.Sprint(s.server.Must("INFO", "cpu"))) {
		name, value, _ := strings.Cut(line, ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += seconds
		}
	}
	return sum
}
