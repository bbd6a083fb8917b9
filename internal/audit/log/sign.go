package log

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rung-dev/rung"
)

var encoding = base64.StdEncoding.Strict()

// checkpointFormat marks an exported checkpoint, and keeps its signature from meaning anything else: the same key signs
// records.
const checkpointFormat = "rung-log-checkpoint-v1"

// Checkpoint says, signed, what the log was at a time: its line of that number had that hash, and so all before it are
// fixed. Kept elsewhere it anchors a later Verify.
type Checkpoint struct {
	Format    string    `json:"format"`
	Log       string    `json:"log"`  // the log's id, random at its creation
	Seq       int64     `json:"seq"`  // the newest line it covers
	Hash      string    `json:"hash"` // that line's SHA-256, in hex
	Time      time.Time `json:"time"`
	Key       string    `json:"key"`       // public key, base64; serves only to say that another key signed
	Signature string    `json:"signature"` // Ed25519, base64
}

// statement is what is signed. No member can contain a line break: they are checked, made by us, or compared as a whole.
func (c *Checkpoint) statement(kind string) []byte {
	return fmt.Appendf(nil, "%s\n%s\n%s\n%d\n%s\n%s\n", checkpointFormat, kind, c.Log, c.Seq, c.Hash, c.Time.Format(time.RFC3339Nano))
}

func (l *Log) sign(kind, id string, seq int64, hash string) (*Checkpoint, error) {
	key, err := l.key()
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Format: checkpointFormat, Log: id, Seq: seq, Hash: hash, Time: l.time()}
	c.Key = encoding.EncodeToString(key.Public().(ed25519.PublicKey))
	c.Signature = encoding.EncodeToString(ed25519.Sign(key, c.statement(kind)))
	return c, nil
}

// fields are a checkpoint as part of a line; its time is the line's.
func (c *Checkpoint) fields() map[string]any {
	return map[string]any{"log": c.Log, "covers": c.Seq, "hash": c.Hash, "key": c.Key, "signature": c.Signature}
}

// signedIn returns the checkpoint that a line holds.
func (line *Line) signedIn() *Checkpoint {
	text := func(name string) string {
		s, _ := line.Fields[name].(string)
		return s
	}
	covers, _ := line.Fields["covers"].(json.Number)
	seq, err := covers.Int64()
	if err != nil {
		seq = -1 // signed by nobody
	}
	return &Checkpoint{
		Format: checkpointFormat, Log: text("log"), Seq: seq, Hash: text("hash"), Time: line.Time, Key: text("key"), Signature: text("signature"),
	}
}

// valid tells what is wrong with a checkpoint's signature, "" if nothing is.
func (c *Checkpoint) valid(kind string, public ed25519.PublicKey) string {
	if c.Key != encoding.EncodeToString(public) {
		return "is signed by another key"
	}
	sig, err := encoding.DecodeString(c.Signature)
	if err != nil || !ed25519.Verify(public, c.statement(kind), sig) {
		return "has a signature that does not fit"
	}
	return ""
}

// ParseCheckpoint reads an exported checkpoint and checks that it is whole, by the key it names itself.
func ParseCheckpoint(text []byte) (*Checkpoint, error) {
	var c Checkpoint
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, rung.Errorf(rung.KindInvalid, "not a checkpoint: %w", err)
	}
	if c.Format != checkpointFormat {
		return nil, rung.Errorf(rung.KindInvalid, "not a checkpoint of format %s", checkpointFormat)
	}
	public, err := encoding.DecodeString(c.Key)
	if err != nil || len(public) != ed25519.PublicKeySize || c.valid(KindCheckpoint, public) != "" {
		return nil, rung.Errorf(rung.KindInvalid, "the checkpoint is damaged: its signature does not fit").
			WithHint("take the copy that was kept elsewhere; one that was edited proves nothing")
	}
	return &c, nil
}
