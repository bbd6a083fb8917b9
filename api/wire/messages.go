package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Bytes is a proto bytes field in JSON: written as standard base64, read in every form that proto-JSON allows (standard or
// URL alphabet, padded or not).
type Bytes []byte

// MarshalJSON implements json.Marshaler.
func (b Bytes) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, base64.StdEncoding.EncodedLen(len(b))+2)
	out = append(out, '"')
	out = base64.StdEncoding.AppendEncode(out, b)
	return append(out, '"'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Bytes) UnmarshalJSON(in []byte) error {
	if string(in) == "null" {
		return nil
	}
	var s string
	if err := json.Unmarshal(in, &s); err != nil {
		return err
	}
	enc := base64.RawStdEncoding
	if strings.ContainsAny(s, "-_") {
		enc = base64.RawURLEncoding
	}
	out, err := enc.DecodeString(strings.TrimRight(s, "="))
	*b = out
	return err
}

// Signal is the enum process.Signal: written by name, read by name or number.
type Signal int

// The signals.
const (
	SIGKILL Signal = 9
	SIGTERM Signal = 15
)

// MarshalJSON implements json.Marshaler.
func (s Signal) MarshalJSON() ([]byte, error) {
	switch s {
	case SIGKILL:
		return []byte(`"SIGNAL_SIGKILL"`), nil
	case SIGTERM:
		return []byte(`"SIGNAL_SIGTERM"`), nil
	default:
		return strconv.AppendInt(nil, int64(s), 10), nil
	}
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Signal) UnmarshalJSON(in []byte) error {
	switch string(in) {
	case `"SIGNAL_SIGKILL"`:
		*s = SIGKILL
	case `"SIGNAL_SIGTERM"`:
		*s = SIGTERM
	case `"SIGNAL_UNSPECIFIED"`, "null":
		*s = 0
	default:
		n, err := strconv.ParseInt(string(in), 10, 32)
		if err != nil {
			return errors.New("unknown signal")
		}
		*s = Signal(n)
	}
	return nil
}

// Uint32 is read from a number or, as proto-JSON allows, a string of one.
type Uint32 uint32

// UnmarshalJSON implements json.Unmarshaler.
func (u *Uint32) UnmarshalJSON(in []byte) error {
	if string(in) == "null" {
		return nil
	}
	n, err := strconv.ParseUint(strings.Trim(string(in), `"`), 10, 32)
	*u = Uint32(n)
	return err
}

// The messages of process.Process; see api/process for their meaning.
type (
	Size struct {
		Cols Uint32 `json:"cols,omitempty"`
		Rows Uint32 `json:"rows,omitempty"`
	}
	PTY struct {
		Size *Size `json:"size,omitempty"`
	}
	ProcessConfig struct {
		Cmd  string            `json:"cmd,omitempty"`
		Args []string          `json:"args,omitempty"`
		Envs map[string]string `json:"envs,omitempty"`
		Cwd  *string           `json:"cwd,omitempty"`
	}
	ProcessInfo struct {
		Config ProcessConfig `json:"config"`
		PID    Uint32        `json:"pid"`
		Tag    *string       `json:"tag,omitempty"`
	}
	Selector struct {
		PID *Uint32 `json:"pid,omitempty"`
		Tag *string `json:"tag,omitempty"`
	}
	ListResponse struct {
		Processes []ProcessInfo `json:"processes"`
	}
	StartRequest struct {
		Process *ProcessConfig `json:"process,omitempty"`
		PTY     *PTY           `json:"pty,omitempty"`
		Tag     *string        `json:"tag,omitempty"`
		Stdin   *bool          `json:"stdin,omitempty"`
		// Raw stands for cmd, args and envs when one of them is not UTF-8, which JSON cannot carry; not in the proto.
		Raw *RawConfig `json:"rungRaw,omitempty"`
	}
	// RawConfig is a ProcessConfig in bytes.
	RawConfig struct {
		Cmd  Bytes   `json:"cmd,omitempty"`
		Args []Bytes `json:"args,omitempty"`
		Envs []Bytes `json:"envs,omitempty"` // K=V
	}
	ConnectRequest struct {
		Process *Selector `json:"process,omitempty"`
	}
	UpdateRequest struct {
		Process *Selector `json:"process,omitempty"`
		PTY     *PTY      `json:"pty,omitempty"`
	}
	Input struct {
		Stdin Bytes `json:"stdin,omitempty"`
		PTY   Bytes `json:"pty,omitempty"`
	}
	SendInputRequest struct {
		Process *Selector `json:"process,omitempty"`
		Input   *Input    `json:"input,omitempty"`
	}
	StreamInputRequest struct {
		Start     *ConnectRequest   `json:"start,omitempty"`
		Data      *SendInputRequest `json:"data,omitempty"`
		Keepalive *Empty            `json:"keepalive,omitempty"`
	}
	SendSignalRequest struct {
		Process *Selector `json:"process,omitempty"`
		Signal  Signal    `json:"signal,omitempty"`
	}
	Empty        struct{}
	EventMessage struct {
		Event *Event `json:"event,omitempty"`
	}
	Event struct {
		Start     *StartEvent `json:"start,omitempty"`
		Data      *DataEvent  `json:"data,omitempty"`
		End       *EndEvent   `json:"end,omitempty"`
		Keepalive *Empty      `json:"keepalive,omitempty"`
	}
	// StartEvent carries one field that the proto does not have, and that Connect clients therefore ignore: where in the
	// output the stream begins, which tells a client that attaches again what it missed.
	StartEvent struct {
		PID    Uint32  `json:"pid,omitempty"`
		Offset *Offset `json:"rungOffset,omitempty"`
	}
	// Offset counts bytes of each output since the process started.
	Offset struct {
		Stdout int64 `json:"stdout"`
		Stderr int64 `json:"stderr"`
	}
	DataEvent struct {
		Stdout Bytes `json:"stdout,omitempty"`
		Stderr Bytes `json:"stderr,omitempty"`
		PTY    Bytes `json:"pty,omitempty"`
	}
	EndEvent struct {
		ExitCode int     `json:"exitCode,omitempty"`
		Exited   bool    `json:"exited,omitempty"`
		Status   string  `json:"status,omitempty"`
		Error    *string `json:"error,omitempty"`
	}
)

// The messages of filesystem.Filesystem; see api/filesystem for their meaning.
type (
	PathRequest struct {
		Path  string `json:"path,omitempty"`
		Depth Uint32 `json:"depth,omitempty"` // ListDir only
		// RawPath stands for path when that is not UTF-8; not in the proto.
		RawPath Bytes `json:"rungRawPath,omitempty"`
	}
	MoveRequest struct {
		Source      string `json:"source,omitempty"`
		Destination string `json:"destination,omitempty"`
	}
	EntryResponse struct {
		Entry *EntryInfo `json:"entry,omitempty"`
	}
	ListDirResponse struct {
		Entries []*EntryInfo `json:"entries,omitempty"`
	}
	EntryInfo struct {
		Name          string            `json:"name,omitempty"`
		Type          string            `json:"type,omitempty"`
		Path          string            `json:"path,omitempty"`
		Size          int64             `json:"size,omitempty,string"`
		Mode          uint32            `json:"mode,omitempty"`
		Permissions   string            `json:"permissions,omitempty"`
		Owner         string            `json:"owner,omitempty"`
		Group         string            `json:"group,omitempty"`
		ModifiedTime  time.Time         `json:"modifiedTime"`
		SymlinkTarget *string           `json:"symlinkTarget,omitempty"`
		Metadata      map[string]string `json:"metadata,omitempty"`
		// RawPath is the path in base64 when it is not UTF-8 and Path therefore only resembles it; not in the proto.
		RawPath Bytes `json:"rungRawPath,omitempty"`
	}
	// Written is one element of the answer to POST /files.
	Written struct {
		Name string `json:"name"`
		Path string `json:"path"`
		Type string `json:"type"`
	}
)

// The file types.
const (
	TypeFile      = "FILE_TYPE_FILE"
	TypeDirectory = "FILE_TYPE_DIRECTORY"
	TypeSymlink   = "FILE_TYPE_SYMLINK"
)

// Extension headers of rung, ignored by everyone else.
const (
	HeaderReplay   = "Rung-Replay"   // Connect: replay kept output from this byte offset; "N" or "STDOUT,STDERR"
	HeaderNofollow = "Rung-Nofollow" // "1": refuse symbolic links anywhere in the path
	HeaderMode     = "Rung-Mode"     // POST /files: permission bits in octal
	HeaderTimeout  = "Connect-Timeout-Ms"
	HeaderKeep     = "Keepalive-Ping-Interval"
)
