package redlock

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkScript tells what requests cost a node, by the processor time that the server says it took: alone, and in batches that gathered while
// it was busy. Half of them take a lock, and half free one.
func BenchmarkScript(b *testing.B) {
	for _, size := range []int{1, 8, 32} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			s := newBench(b, true)
			takes, frees := make([]string, size), make([]string, size)
			for i := range size {
				name := "invoices/" + strconv.Itoa(i)
				takes[i] = name + `: a 0123456789ABCDEF.` + strconv.Itoa(i) + `~ 10000 5 "owner":"0123456789ABCDEF.1","pid":12345,"host":"db7.example"}`
				frees[i] = name + ": f 0123456789ABCDEF." + strconv.Itoa(i) + "~ 0"
			}
			s.ask(takes...) // the script is known from now on
			s.ask(frees...)
			before := s.processorTime(b)
			requests := 0
			for b.Loop() {
				half := size / 2 // of the batch are releases of what the last one took
				if size == 1 {
					s.ask(takes...)
					s.ask(frees...)
				} else {
					s.ask(append(takes[:half:half], frees[half:]...)...)
					s.ask(append(takes[half:len(takes):len(takes)], frees[:half]...)...)
				}
				requests += 2 * size
			}
			b.ReportMetric((s.processorTime(b)-before)*1e6/float64(requests), "server-µs/request")
		})
	}
}

// processorTime is what the server has taken, in seconds.
func (b *bench) processorTime(t testing.TB) (sum float64) {
	for _, line := range strings.Fields(fmt.Sprint(b.server.Must("INFO", "cpu"))) {
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
