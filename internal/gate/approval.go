package gate

import (
	"context"
	"sync"
	"time"

	"github.com/rung-dev/rung/internal/gate/control"
)

// approvals are the requests of one session that wait for their owner's word.
type approvals struct {
	ask     func(control.Approval) bool // tells the owner; false when there is nobody to ask
	mu      sync.Mutex
	next    int
	waiting map[int]chan bool // guarded by mu
}

// maxWaiting bounds the requests that wait at once: a guest must not bury its owner in questions.
const maxWaiting = 8

// granted asks the owner about one request and waits for the answer. No answer is a no.
func (a *approvals) granted(ctx context.Context, q control.Approval) bool {
	ch := make(chan bool, 1)
	a.mu.Lock()
	if a.waiting == nil {
		a.waiting = map[int]chan bool{}
	}
	if len(a.waiting) >= maxWaiting {
		a.mu.Unlock()
		return false
	}
	a.next++
	q.Number = a.next
	a.waiting[q.Number] = ch
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.waiting, q.Number)
		a.mu.Unlock()
	}()
	if !a.ask(q) {
		return false
	}
	limit := time.NewTimer(control.ApprovalTimeout)
	defer limit.Stop()
	select {
	case yes := <-ch:
		return yes
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
}

func (a *approvals) answer(r control.Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ch := a.waiting[r.Number]; ch != nil {
		select {
		case ch <- r.Yes:
		default: // answered already
		}
	}
}
