// Package agent knows whose sandboxes are whose and which agents are revoked.
//
// A mark is a file, agents/NAME.json below the state directory: to ask costs one stat. The name of the agent stands in the
// file "agent" of each live sandbox's directory. Revoking writes the mark first and looks for sandboxes and leases after;
// whoever makes a sandbox or delivers a lease writes first and looks for the mark after (Enter, Deliver). So of the two at
// least one sees the other, whatever the order, and nothing starts beside a revocation.
package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/broker/keep"
)

const (
	dirName   = "agents"
	markExt   = ".json"
	maxMark   = 4 << 10
	maxReason = 1024
	// FileName is the file in a sandbox's directory with its agent's name.
	FileName = "agent"
	maxName  = 64
	// drain is how long a revocation waits for leases that are being delivered; their receivers are given up after less.
	drain = 5 * time.Second
)

// Revocation is one mark.
type Revocation struct {
	Agent     string    `json:"agent"`
	RevokedAt time.Time `json:"revoked_at"`
	Reason    string    `json:"reason,omitempty"`
}

// Revoked reports whether the agent is revoked. It costs one stat. What cannot be told is an error, never "no".
func Revoked(state, agent string) (bool, error) {
	if err := rung.ValidName(agent); err != nil {
		return false, err
	}
	_, err := os.Lstat(filepath.Join(state, dirName, agent+markExt))
	if err == nil {
		return true, nil // whatever it is, somebody put it there
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return false, rung.Errorf(rung.KindUnavailable, "whether agent %s is revoked cannot be told: %w", agent, err)
}

// Permit is a KindRefused error when the agent is revoked.
func Permit(state, agent string) error {
	revoked, err := Revoked(state, agent)
	if err == nil && revoked {
		return rung.Errorf(rung.KindRefused, "agent %s is revoked: it gets no sandbox and no secret", agent).
			WithHint("rung agent show " + agent + " tells why; rung agent restore " + agent + " lets it work again")
	}
	return err
}

// Enter writes the agent's name into the directory of its sandbox and refuses a revoked agent after that. The caller ends
// the sandbox on an error.
func Enter(state, sandboxDir, agent string) error {
	if err := rung.ValidName(agent); err != nil {
		return err
	}
	if err := write(sandboxDir, agent); err != nil {
		return rung.Errorf(rung.KindInternal, "name the sandbox's agent: %w", err)
	}
	return Permit(state, agent)
}

// write puts the whole name in its place at once: a revocation may be reading.
func write(dir, agent string) error {
	temp := filepath.Join(dir, FileName+".new")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(temp) // the sandbox's directory goes as a whole anyway
	_, err = f.WriteString(agent + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(temp, filepath.Join(dir, FileName)) // unlike a rename it never replaces
}

// Of returns the agent of a sandbox by its directory; fs.ErrNotExist where none was written.
func Of(sandboxDir string) (string, error) {
	f, err := os.OpenFile(filepath.Join(sandboxDir, FileName), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxName+2))
	if err != nil {
		return "", err
	}
	name := string(bytes.TrimSuffix(text, []byte("\n")))
	return name, rung.ValidName(name)
}

// Deliver calls send unless the agent is revoked. A revocation that begins meanwhile waits for its end, so that what was
// sent is there to be ended.
func Deliver(ctx context.Context, state, agent string, send func() error) error {
	d, err := keep.Make(state, dirName)
	if err != nil {
		return err
	}
	defer d.Close()
	unlock, err := d.Lock(ctx, false)
	if err != nil {
		return err
	}
	defer unlock()
	if err := Permit(state, agent); err != nil {
		return err
	}
	return send()
}

// Mark revokes an agent: when it returns, the mark is on the disk and no lease of the agent is on its way. An agent that is
// revoked already keeps its first mark.
func Mark(ctx context.Context, state, agent, reason string) (Revocation, error) {
	r := Revocation{Agent: agent, RevokedAt: time.Now().UTC(), Reason: reason}
	if err := rung.ValidName(agent); err != nil {
		return r, err
	}
	if len(reason) > maxReason || !utf8.ValidString(reason) {
		return r, rung.Errorf(rung.KindInvalid, "the reason is at most %d bytes of text", maxReason)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return r, rung.Errorf(rung.KindInternal, "encode the mark: %w", err)
	}
	d, err := keep.Make(state, dirName)
	if err != nil {
		return r, err
	}
	defer d.Close()
	if err := d.Create(agent+markExt, text); err != nil && !errors.Is(err, fs.ErrExist) {
		return r, err
	} else if err != nil {
		r = read(d, agent)
	}
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	unlock, err := d.Lock(ctx, true)
	if err != nil {
		return r, rung.Errorf(rung.KindOf(err), "agent %s is revoked, but a lease that was being delivered may have been: %w", agent, err)
	}
	unlock()
	return r, nil
}

// read returns a mark. A damaged one revokes as well; only its reason is lost.
func read(d *keep.Dir, agent string) Revocation {
	r := Revocation{}
	text, err := d.Read(agent+markExt, maxMark)
	if err != nil || json.Unmarshal(text, &r) != nil || r.Agent != agent {
		r = Revocation{Agent: agent, Reason: "(the mark is damaged)"}
	}
	return r
}

// Restore removes the mark of an agent.
func Restore(state, agent string) error {
	if err := rung.ValidName(agent); err != nil {
		return err
	}
	d, err := keep.Open(state, dirName)
	if err == nil {
		err = d.Remove(agent + markExt)
		d.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return rung.Errorf(rung.KindNotFound, "agent %s is not revoked", agent)
	}
	return err
}

// Marks lists all revocations by name.
func Marks(state string) ([]Revocation, error) {
	d, err := keep.Open(state, dirName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Names(markExt)
	if err != nil {
		return nil, err
	}
	var list []Revocation
	for _, n := range names {
		if rung.ValidName(n) == nil {
			list = append(list, read(d, n))
		}
	}
	return list, nil
}

// Sandboxes tells the sandboxes of each agent by the runtime directory, alive or not, and those whose agent cannot be told.
// One without the file belongs to nobody yet: it enters after this look, and then sees a mark.
func Sandboxes(runtimeDir string) (map[string][]string, error) {
	entries, err := os.ReadDir(filepath.Join(runtimeDir, "sandboxes"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, rung.Errorf(rung.KindUnavailable, "list the sandboxes: %w", err)
	}
	all, failed := map[string][]string{}, error(nil)
	for _, e := range entries {
		if rung.ValidName(e.Name()) != nil {
			continue
		}
		name, err := Of(filepath.Join(runtimeDir, "sandboxes", e.Name()))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			failed = errors.Join(failed, rung.Errorf(rung.KindUnavailable, "whose sandbox %s is cannot be told: %w", e.Name(), err))
			continue
		}
		all[name] = append(all[name], e.Name())
	}
	for _, ids := range all {
		slices.Sort(ids)
	}
	return all, failed
}
