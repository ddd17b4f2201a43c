package cli

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/sniblock/snib/driver"
)

// A screen is the bubbletea model of what snib top shows on a terminal.
type screen struct {
	width, height int
	frame         frame
	order         int    // which of sortOrders
	filter        string // rows are shown if they match it
	selected      string // the name of the lock that keys are about, or "" if none is shown
	row           int    // where it stands among the rows that are shown
	mode          keyMode
	input         string // what was typed in the present mode
	notice        string // what to say about the last key or release, or ""

	// The lock that is to be released, and how.
	target      driver.Status
	reason      string
	checkReason func(name, reason string) error
	release     func(name string, holds []driver.Holding, reason string)
}

// A keyMode is what the keys mean at present.
type keyMode int

const (
	modeList keyMode = iota
	modeFilter
	modeDetails
	modeReason  // type why the lock is released
	modeConfirm // type the name of the lock that is released
)

// A noticeMsg tells the user what became of a release.
type noticeMsg string

func (screen) Init() tea.Cmd { return nil }

func (m screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case frame:
		m.frame = msg
		m.frame.rows = slices.Clone(msg.rows)
		m.frame.sort(m.order)
		m.selectLock()
	case noticeMsg:
		m.notice = string(msg)
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.PasteMsg:
		if m.isTyping() {
			m.typeText(msg.Content)
		}
	case tea.KeyPressMsg:
		return m.press(msg)
	}
	return m, nil
}

// press does what a key means in the present mode.
func (m screen) press(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	m.notice = ""
	name := key.String()
	switch {
	case name == "ctrl+c":
		return m, tea.Quit
	case m.isTyping():
		m.pressTyping(key)
	case name == "q", name == "esc" && m.mode == modeList && m.filter == "":
		return m, tea.Quit
	case m.mode == modeDetails:
		m.pressDetails(name)
	default:
		m.pressList(name)
	}
	m.selectLock()
	return m, nil
}

func (m *screen) pressList(key string) {
	page := max(1, m.listHeight())
	switch key {
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-page)
	case "pgdown", "space":
		m.move(page)
	case "home", "g":
		m.move(-len(m.frame.rows))
	case "end", "G":
		m.move(len(m.frame.rows))
	case "s":
		m.order = (m.order + 1) % len(sortOrders)
		m.frame.sort(m.order)
	case "/":
		m.mode, m.input = modeFilter, m.filter
	case "esc":
		m.filter = ""
	case "enter":
		if m.selected != "" {
			m.mode = modeDetails
		}
	case "x":
		m.beginRelease()
	}
}

func (m *screen) pressDetails(key string) {
	switch key {
	case "esc", "enter":
		m.mode = modeList
	case "x":
		m.beginRelease()
	}
}

// isTyping reports whether keys write a text.
func (m *screen) isTyping() bool {
	return m.mode == modeFilter || m.mode == modeReason || m.mode == modeConfirm
}

func (m *screen) pressTyping(key tea.KeyPressMsg) {
	switch key.String() {
	case "enter":
		m.enter()
	case "esc":
		if m.mode == modeFilter {
			m.filter = ""
		} else {
			m.notice = "nothing was released"
		}
		m.mode = modeList
	case "backspace":
		runes := []rune(m.input)
		m.input = ""
		m.typeText(string(runes[:max(0, len(runes)-1)]))
	case "ctrl+u":
		m.input = ""
		m.typeText("")
	default:
		m.typeText(key.Text)
	}
}

// typeText adds to what was typed. A filter works at once.
func (m *screen) typeText(text string) {
	m.input += strings.ReplaceAll(text, "\n", " ")
	if m.mode == modeFilter {
		m.filter = m.input
		m.selectLock()
	}
}

// enter takes what was typed.
func (m *screen) enter() {
	typed := m.input
	m.input = ""
	switch m.mode {
	case modeFilter:
		m.mode = modeList
	case modeReason:
		if err := m.checkReason(m.target.Name, typed); err != nil {
			m.mode, m.notice = modeList, message(err)
			return
		}
		m.mode, m.reason = modeConfirm, typed
	case modeConfirm:
		m.mode = modeList
		if name := m.target.Name; typed != name && typed != printable(name) {
			m.notice = "that is not the name: nothing was released"
			return
		}
		m.notice = "releasing " + printable(m.target.Name)
		m.release(m.target.Name, m.target.Holders, m.reason)
	}
}

// beginRelease asks about the holds of the selected lock as they are shown now. A hold that begins
// later is left alone.
func (m *screen) beginRelease() {
	row := m.selectedRow()
	switch {
	case row == nil || len(row.status.Holders) == 0:
		m.notice = "nobody holds it"
	case isUnbreakable(row.status.Holders[0]):
		m.notice = "it " + unbreakableText(row.status.Holders[0])
	default:
		m.target, m.input, m.mode = row.status, "", modeReason
	}
}

// move selects the lock that stands n rows below, or above if n is negative.
func (m *screen) move(n int) {
	rows := m.frame.matching(m.filter)
	if len(rows) > 0 {
		m.row = min(max(m.row+n, 0), len(rows)-1)
		m.selected = rows[m.row].status.Name
	}
}

// selectLock follows the selected lock to where it stands now. If it is gone, the one in its place
// is selected, unless its details are shown.
func (m *screen) selectLock() {
	rows := m.frame.matching(m.filter)
	if i := slices.IndexFunc(rows, func(r frameRow) bool { return r.status.Name == m.selected }); i >= 0 {
		m.row = i
		return
	}
	if m.mode == modeDetails {
		return
	}
	if m.selected = ""; len(rows) > 0 {
		m.row = min(m.row, len(rows)-1)
		m.selected = rows[m.row].status.Name
	}
}

// selectedRow returns the row of the selected lock, or nil if nobody holds it or waits for it.
func (m *screen) selectedRow() *frameRow {
	for i, r := range m.frame.rows {
		if r.status.Name == m.selected {
			return &m.frame.rows[i]
		}
	}
	return nil
}

func (m screen) View() tea.View {
	text := "snib top: looking"
	if !m.frame.at.IsZero() {
		text = m.body()
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if room := max(1, m.height-2); len(lines) > room {
		lines = append(lines[:room-1], "…")
	}
	for i, line := range lines {
		lines[i] = truncate(line, m.width)
	}
	v := tea.NewView(strings.Join(append(lines, truncate(m.prompt(), m.width), truncate(m.keys(), m.width)), "\n"))
	v.AltScreen = true
	return v
}

func (m *screen) body() string {
	switch m.mode {
	case modeDetails:
		return m.details()
	case modeReason, modeConfirm:
		return strings.Join(releaseWarnings(m.target.Name, m.target.Holders), "\n")
	}
	return m.frame.summary(m.width) + topTable(m.page(), m.selected, m.width)
}

// listHeight returns how many locks there is room for: without the summary, the head of the table,
// the prompt and the keys.
func (m *screen) listHeight() int { return max(1, m.height-summaryHeight-3) }

// page returns the rows of the page that shows the selected lock.
func (m *screen) page() []frameRow {
	rows, height := m.frame.matching(m.filter), m.listHeight()
	first := min(m.row, max(0, len(rows)-1)) / height * height
	return rows[first:min(len(rows), first+height)]
}

// details returns all about the selected lock: its holders, its queue, and what was seen of it.
// The history has at least a third of the height.
func (m *screen) details() string {
	st := driver.Status{Name: m.selected}
	if row := m.selectedRow(); row != nil {
		st = row.status
	}
	lines := strings.Split(strings.TrimSuffix(lockText(st), "\n"), "\n")
	if room := max(1, (m.height-3)*2/3); len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("… %s more: see snib show", plural(more, "line")))
	}
	lines = append(lines, "", "since snib top began, the newest first:")
	happened := m.frame.of(m.selected, max(1, m.height-2-len(lines)))
	for _, e := range happened {
		lines = append(lines, strings.TrimSuffix(e.line(m.width), "\n"))
	}
	if len(happened) == 0 {
		lines = append(lines, "nothing was seen yet")
	}
	return strings.Join(lines, "\n")
}

// prompt returns the line above the keys.
func (m *screen) prompt() string {
	switch m.mode {
	case modeFilter:
		return "filter: " + m.input + "_"
	case modeReason:
		return "why, for the audit line (may be empty): " + m.input + "_"
	case modeConfirm:
		return "type the name of the lock to release it: " + m.input + "_"
	}
	return m.notice
}

// keys says what the keys do.
func (m *screen) keys() string {
	switch m.mode {
	case modeFilter:
		return "enter to keep the filter, esc to drop it"
	case modeReason, modeConfirm:
		return "enter to go on, esc to release nothing"
	case modeDetails:
		return "q to quit, esc to go back, x to release it"
	}
	filter := ""
	if m.filter != "" {
		filter = fmt.Sprintf(" (%q; esc for all)", m.filter)
	}
	return fmt.Sprintf("q to quit, enter for details, x to release, s to sort (%s), / to filter%s", sortOrders[m.order].name, filter)
}
