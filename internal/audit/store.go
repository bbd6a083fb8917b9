package audit

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/audit/log"
)

const (
	recordDir = "records"
	dayForm   = "2006-01-02"
	suffix    = ".json"
	// tempMark begins the name of a record being written. ValidName forbids it for records.
	tempMark = ".tmp-"
	// staleTemp is the age after which a half-written record is somebody's who died.
	staleTemp = time.Hour
)

// Path is where the record is or will be stored.
func (s *Store) Path(rec *rung.Record) string {
	return filepath.Join(s.dir, recordDir, day(rec), rec.ID+suffix)
}

func day(rec *rung.Record) string { return rec.Started.UTC().Format(dayForm) }

// Save signs the record if it is not, stores it and returns its path. An error, such as a full disk, leaves rec usable and
// nothing half-written: the caller still has its result to print. Now and then it prunes.
func (s *Store) Save(rec *rung.Record) (string, error) {
	if err := rung.ValidName(rec.ID); err != nil {
		return "", err
	}
	if rec.Signature == nil {
		if err := s.Sign(rec); err != nil {
			return "", err
		}
	}
	text, err := Encode(rec)
	if err != nil {
		return "", err
	}
	if len(text) > maxOneRecord {
		return "", rung.Errorf(rung.KindExhausted, "the record of %s is %s, more than the %s that are stored",
			rec.ID, rung.FormatBytes(int64(len(text))), rung.FormatBytes(maxOneRecord)).WithHint("lower --max-output")
	}
	if err := s.write(filepath.Join(recordDir, day(rec)), rec.ID, text); err != nil {
		return "", err
	}
	s.sometimesPrune(len(text))
	return s.Path(rec), nil
}

// write holds the day's directory open, which spares walking to it for each of the three calls.
func (s *Store) write(dir, id string, text []byte) error {
	day, err := s.root.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) { // the first record of the day
		if err := s.root.MkdirAll(dir, 0o700); err != nil {
			return stateError("make the record directory", err)
		}
		day, err = s.root.OpenRoot(dir)
	}
	if err != nil {
		return stateError("open the record directory", err)
	}
	defer day.Close()
	temp := tempMark + id
	f, err := day.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) { // half a record of somebody who died, or a link that we would write through
		if err = day.Remove(temp); err == nil {
			f, err = day.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		}
	}
	if err != nil {
		return stateError("store the record", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = day.Rename(temp, id+suffix)
	}
	if err != nil {
		day.Remove(temp) // best effort: Prune removes it otherwise
		return stateError("store the record", err)
	}
	return nil
}

// Stored is one stored record.
type Stored struct {
	ID   string    `json:"id"`
	Path string    `json:"path"` // absolute
	Size int64     `json:"size"`
	Time time.Time `json:"time"` // when it was stored

	name string // below the state directory
}

// List returns the stored records, newest first, at most limit of them (0: all).
func (s *Store) List(limit int) ([]Stored, error) {
	var list []Stored
	err := s.eachDay(func(dir string) bool {
		list = append(list, s.inDay(dir)...)
		return limit == 0 || len(list) < limit
	})
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return list, err
}

// Load returns the stored text of a record; KindNotFound when there is none. Verify tells whether to believe it.
func (s *Store) Load(id string) ([]byte, error) {
	if err := rung.ValidName(id); err != nil {
		return nil, err
	}
	text, err := []byte(nil), error(rung.Errorf(rung.KindNotFound, "no record %q", id))
	dayErr := s.eachDay(func(dir string) bool {
		f, openErr := log.OpenFile(s.root, filepath.Join(dir, id+suffix), os.O_RDONLY)
		if errors.Is(openErr, fs.ErrNotExist) {
			return true
		}
		if err = openErr; err == nil {
			text, err = io.ReadAll(io.LimitReader(f, maxOneRecord+1))
			f.Close() // only read from
		}
		if err != nil {
			err = stateError("read the record", err)
		}
		return false
	})
	if dayErr != nil {
		return nil, dayErr
	}
	return text, err
}

// eachDay calls fn with the directory of each day, newest first, until it returns false.
func (s *Store) eachDay(fn func(dir string) bool) error {
	days, err := s.names(recordDir)
	if err != nil {
		return err
	}
	slices.Sort(days)
	for _, d := range slices.Backward(days) {
		if _, err := time.Parse(dayForm, d); err != nil {
			continue // not ours
		}
		if !fn(filepath.Join(recordDir, d)) {
			break
		}
	}
	return nil
}

func (s *Store) names(dir string) ([]string, error) {
	f, err := s.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, stateError("list the records", err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, stateError("list the records", err)
	}
	return names, nil
}

// inDay returns one day's records, newest first. What vanishes while it looks was pruned by somebody else.
func (s *Store) inDay(dir string) []Stored {
	names, err := s.names(dir)
	if err != nil {
		return nil
	}
	var list []Stored
	for _, name := range names {
		id, ok := strings.CutSuffix(name, suffix)
		if !ok || rung.ValidName(id) != nil {
			continue
		}
		path := filepath.Join(dir, name)
		info, err := s.root.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		list = append(list, Stored{ID: id, Path: filepath.Join(s.dir, path), Size: info.Size(), Time: info.ModTime(), name: path})
	}
	slices.SortFunc(list, func(a, b Stored) int { return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.ID, b.ID)) })
	return list
}

// sometimesPrune prunes on one save in 256, and the likelier the larger the record is, so that neither many small nor a few
// large ones outrun it. Looking at a full store costs tens of milliseconds, which no single run should pay as a rule.
func (s *Store) sometimesPrune(size int) {
	if rand.Float64() < 1.0/256+float64(size)/(8<<20) {
		_ = s.Prune(MaxRecords, MaxRecordBytes) // the next one tries again
	}
}

// Prune removes the oldest records beyond the caps and what dead writers left. It goes a twentieth below the caps when it
// removes at all, so that a full store is not pruned on every occasion.
func (s *Store) Prune(maxCount int, maxBytes int64) error {
	all, err := s.List(0)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, e := range all {
		total += e.Size
	}
	if len(all) > maxCount || total > maxBytes {
		count := len(all)
		for _, e := range slices.Backward(all) {
			if count <= maxCount-maxCount/20 && total <= maxBytes-maxBytes/20 {
				break
			}
			if err := s.root.Remove(e.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return stateError("prune the records", err)
			}
			count, total = count-1, total-e.Size
		}
	}
	return s.sweep()
}

// sweep removes half-written records of dead writers and the directories of days without records.
func (s *Store) sweep() error {
	today := time.Now().UTC().Format(dayForm)
	return s.eachDay(func(dir string) bool {
		names, err := s.names(dir)
		for _, name := range names {
			path := filepath.Join(dir, name)
			if !strings.HasPrefix(name, tempMark) {
				continue
			}
			if info, err := s.root.Lstat(path); err == nil && time.Since(info.ModTime()) > staleTemp {
				_ = s.root.Remove(path) // tried again next time
			}
		}
		if err == nil && len(names) == 0 && filepath.Base(dir) < today {
			_ = s.root.Remove(dir) // fails when a record came in meanwhile, as it should
		}
		return true
	})
}
