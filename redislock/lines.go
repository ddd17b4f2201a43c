package redislock

import (
	"fmt"
	"slices"
	"strconv"
)

// LinesOf returns the reply of a command as the Lines of a [Reply]: an array, also one within it,
// as its elements in turn, a map as its keys, each followed by its value, numbers in decimal, and
// nil as "". So they are the same in both versions of the protocol.
func LinesOf(reply any) []string { return appendLines([]string{}, reply) }

func appendLines(lines []string, reply any) []string {
	switch r := reply.(type) {
	case nil:
		return append(lines, "")
	case string:
		return append(lines, r)
	case float64:
		return append(lines, strconv.FormatFloat(r, 'f', -1, 64))
	case []any:
		for _, element := range r {
			lines = appendLines(lines, element)
		}
		return lines
	case map[string]any:
		return appendMap(lines, r)
	case map[any]any:
		return appendMap(lines, r)
	}
	return append(lines, fmt.Sprint(reply))
}

func appendMap[K comparable](lines []string, m map[K]any) []string {
	for key, value := range m {
		lines = slices.Concat(lines, LinesOf(key), LinesOf(value))
	}
	return lines
}
