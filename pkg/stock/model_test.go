package stock_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
)

// model is what a sale's keys must say, computed the plain way.
type model struct {
	generation int64
	fence      uint64
	perUser    int64
	put        map[string]int64 // units per limited SKU: the first stock and what was added
	left       map[string]int64 // remaining units, sale.Unlimited for unlimited
	bought     map[string]holding
	grants     map[string]*modelGrant
	order      []string // of the grants
	applied    map[string]int64
	processes  map[string]*modelProcess
	broken     string // why the state is not trusted, "" when it is
}

type holding struct {
	units int64
	last  string
}

type modelGrant struct {
	generation int64
	process    string
	number     uint64
	ask        stock.Ask
	held       []int64 // units per line that did not come back
}

type modelProcess struct {
	outbox        []modelBatch // oldest first
	known         bool         // has a line in outboxes
	acked, barred uint64
}

type modelBatch struct {
	number uint64
	text   string
}

func newModel(left map[string]int64, perUser int64) *model {
	m := &model{
		generation: 1, fence: 7, perUser: perUser, put: map[string]int64{}, left: maps.Clone(left),
		bought: map[string]holding{}, grants: map[string]*modelGrant{}, applied: map[string]int64{},
		processes: map[string]*modelProcess{},
	}
	for sku, n := range left {
		if n != sale.Unlimited {
			m.put[sku] = n
		}
	}
	return m
}

func (m *model) process(name string) *modelProcess {
	if m.processes[name] == nil {
		m.processes[name] = &modelProcess{}
	}
	return m.processes[name]
}

// grab decides a batch and returns the answers as answerText shows them.
func (m *model) grab(b stock.Batch) []string {
	var answers, won, again []string
	for _, a := range b.Asks {
		answer := m.decide(b, a)
		answers = append(answers, answer)
		order := a.Grant.OrderID
		switch {
		case answer == "W":
			won = append(won, order)
		case answer[0] == 'R' && m.grants[order].generation == m.generation &&
			!slices.Contains(won, order) && !slices.Contains(again, order):
			again = append(again, order)
		}
	}
	if len(won)+len(again) == 0 {
		return answers
	}
	p := m.process(b.Process)
	p.trim(b.Acked)
	text := fmt.Sprintf("%d/%d/%d/%s %s", m.generation, m.fence, b.Number, b.Process, strings.Join(append(won, again...), " "))
	p.outbox = append(p.outbox, modelBatch{b.Number, text})
	p.known, p.acked = true, max(p.acked, b.Acked)
	return answers
}

func (m *model) decide(b stock.Batch, a stock.Ask) string {
	g := a.Grant
	if known := m.grants[g.OrderID]; known != nil {
		return fmt.Sprintf("R(%s/%d)", known.process, known.number)
	}
	has := m.bought[g.User]
	if g.User != "" && m.perUser > 0 && has.units+g.Units() > m.perUser {
		if m.perUser == 1 && has.units > 0 {
			return "A(" + has.last + ")"
		}
		return fmt.Sprintf("L(%d)", has.units)
	}
	need := map[string]int64{}
	for _, l := range g.Lines {
		need[l.SKU] += l.Quantity
	}
	for _, l := range g.Lines {
		if m.left[l.SKU] != sale.Unlimited && m.left[l.SKU] < need[l.SKU] {
			return "S(" + l.SKU + ")"
		}
	}
	granted := &modelGrant{generation: m.generation, process: b.Process, number: b.Number, ask: a}
	for _, l := range g.Lines {
		m.add(l.SKU, -l.Quantity)
		granted.held = append(granted.held, l.Quantity)
	}
	if g.User != "" {
		m.bought[g.User] = holding{has.units + g.Units(), g.OrderID}
	}
	m.grants[g.OrderID] = granted
	m.order = append(m.order, g.OrderID)
	return "W"
}

func (m *model) add(sku string, units int64) {
	if m.left[sku] != sale.Unlimited {
		m.left[sku] += units
	}
}

func (m *model) release(g sale.Giveback) {
	if _, known := m.applied[g.ID]; known {
		return
	}
	total := int64(0)
	for _, l := range g.Lines {
		m.add(l.SKU, l.Quantity)
		total += l.Quantity
	}
	m.applied[g.ID] = total
	if h, ok := m.bought[g.User]; ok {
		h.units = max(0, h.units-total)
		m.bought[g.User] = h
	}
}

func (p *modelProcess) trim(through uint64) {
	for len(p.outbox) > 0 && p.outbox[0].number <= through {
		p.outbox = p.outbox[1:]
	}
}

func (m *model) trim(t stock.Trim) (left int64) {
	p := m.process(t.Process)
	p.trim(t.Through)
	if t.Forget && len(p.outbox) == 0 && max(p.barred, t.Bar) == 0 {
		p.known, p.acked, p.barred = false, 0, 0
		return 0
	}
	if t.Durable {
		p.acked = max(p.acked, t.Through)
	}
	p.barred = max(p.barred, t.Bar)
	p.known = p.known || p.acked+p.barred > 0
	return int64(len(p.outbox))
}

// void takes back a grant that was fenced out: nobody heard of it.
func (m *model) void(order string) {
	for _, l := range m.grants[order].ask.Grant.Lines {
		m.add(l.SKU, l.Quantity)
	}
	delete(m.grants, order)
	m.order = slices.DeleteFunc(m.order, func(o string) bool { return o == order })
}

// restored begins the next generation: every grant is durable now, and who holds
// what follows from the grants alone.
func (m *model) restored(generation int64, fence uint64) {
	m.generation, m.fence, m.broken = generation, fence, ""
	m.bought = map[string]holding{}
	for _, order := range m.order {
		g := m.grants[order]
		g.generation, g.process, g.number = 0, "-", 0
		units := int64(0)
		for _, n := range g.held {
			units += n
		}
		if user := g.ask.Grant.User; user != "" {
			m.bought[user] = holding{m.bought[user].units + units, order}
		}
	}
}

// dump is what till.dump must show.
func (m *model) dump() string {
	lines := []string{fmt.Sprintf("meta hash applied=%d, buyers=%d, era=ERA, fence=%d, gen=%d, grants=%d",
		len(m.applied), len(m.bought), m.fence, m.generation, len(m.grants))}
	hash := func(name string, entries map[string]string) {
		var parts []string
		for _, field := range slices.Sorted(maps.Keys(entries)) {
			parts = append(parts, field+"="+entries[field])
		}
		if len(parts) > 0 {
			lines = append(lines, name+" hash "+strings.Join(parts, ", "))
		}
	}
	bought, grants, applied, outboxes := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	for user, h := range m.bought {
		bought[user] = fmt.Sprintf("%d %s", h.units, h.last)
	}
	for order, g := range m.grants {
		grants[order] = fmt.Sprintf("%s %d|%s", g.process, g.number, grantText(*g.ask.Grant))
	}
	for id, units := range m.applied {
		applied[id] = fmt.Sprint(units)
	}
	for name, p := range m.processes {
		if p.known {
			outboxes[name] = fmt.Sprintf("%d %d", p.acked, p.barred)
		}
		var batches []string
		for _, b := range slices.Backward(p.outbox) {
			batches = append(batches, b.text)
		}
		if len(batches) > 0 {
			lines = append(lines, "outbox:"+name+" list "+strings.Join(batches, ", "))
		}
	}
	hash("buyers", bought)
	hash("grants", grants)
	hash("applied", applied)
	hash("outboxes", outboxes)
	for sku, n := range m.left {
		lines = append(lines, fmt.Sprintf("stock:%s string %d", sku, n))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
