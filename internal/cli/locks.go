package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/lockproxy/lockproxy/internal/resp"
)

type locksCommand struct {
	connection

	Match string
	Count int
	JSON  bool
}

func (c *locksCommand) flags(f *pflag.FlagSet) {
	c.connection.flags(f)
	f.StringVar(&c.Match, "match", "", "List only keys that match `PATTERN`, as in KEYS.")
	f.IntVar(&c.Count, "count", 0, "List at most `N` locks.")
	f.BoolVar(&c.JSON, "json", false, "Print JSON.")
}

func (c *locksCommand) arguments(f *pflag.FlagSet) error {
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %s", f.Arg(0))
	}
	if c.Count < 0 {
		return fmt.Errorf("--count: %d is negative", c.Count)
	}
	c.complete()
	return nil
}

// question is the flags and arguments of a command about one lock.
type question struct {
	connection

	Key  string
	JSON bool
}

func (q *question) flags(f *pflag.FlagSet) {
	q.connection.flags(f)
	f.BoolVar(&q.JSON, "json", false, "Print JSON.")
}

func (q *question) arguments(f *pflag.FlagSet) error {
	q.complete()
	q.Key = f.Arg(0)
	switch {
	case f.NArg() != 1:
		return fmt.Errorf("%d arguments, where one is expected: the name of the lock", f.NArg())
	case q.Key == "":
		return errNoName
	}
	return nil
}

type infoCommand struct{ question }

type unlockCommand struct {
	question

	Owner  string
	Fence  int64
	Shared bool
}

func (c *unlockCommand) flags(f *pflag.FlagSet) {
	c.question.flags(f)
	f.StringVar(&c.Owner, "owner", "", "Release one hold of the OWNER `ID` only.")
	f.Int64Var(&c.Fence, "fence", 0, "Release the grant with the fence `N` only, with all its holds.")
	f.BoolVar(&c.Shared, "shared", false, "With --owner: release its shared hold.")
}

func (c *unlockCommand) arguments(f *pflag.FlagSet) error {
	if err := c.question.arguments(f); err != nil {
		return err
	}
	switch {
	case c.Shared && c.Owner == "":
		return errors.New("--shared needs --owner")
	case f.Changed("fence") && c.Fence < 1:
		return fmt.Errorf("--fence: %d is less than 1", c.Fence)
	}
	return nil
}

// lock is a lock as LOCKINFO and LOCKLIST show it.
type lock struct {
	Key     string `json:"key"`
	KeyAs   string `json:"key_base64,omitempty"` // the bytes, if they are not UTF-8: JSON cannot say them
	holder         // one of them
	Mode    string `json:"mode"`              // exclusive, shared or limit
	Limit   int64  `json:"limit,omitempty"`   // of the latest grant in mode limit
	HeldMS  *int64 `json:"held_ms,omitempty"` // nil: the proxy does not know it
	Fair    int64  `json:"fair_waiters"`
	Local   int64  `json:"local_waiters"`
	Reentry string `json:"reentry,omitempty"` // of the holder's connection: connection or owner, as lock.reentry

	Holders []holder `json:"holders,omitempty"` // all of them, if there may be several
}

// holder is one of the holders of a lock.
type holder struct {
	Owner   string `json:"owner"`
	Holds   int64  `json:"holds"`
	LeaseMS int64  `json:"lease_ms"`
	Fence   int64  `json:"fence"` // 0: none, a lock of Redisson
	Client  string `json:"client,omitempty"`
	Name    string `json:"name,omitempty"`
	Note    string `json:"note,omitempty"`
}

// lockOf reads a map of either protocol version.
func lockOf(v resp.Value, key string) lock {
	l := lock{Key: key}
	texts := map[string]*string{
		"key": &l.Key, "owner": &l.Owner, "mode": &l.Mode, "client": &l.Client, "name": &l.Name,
		"note": &l.Note, "reentry": &l.Reentry,
	}
	numbers := map[string]*int64{
		"holds": &l.Holds, "ttl-ms": &l.LeaseMS, "fence": &l.Fence, "limit": &l.Limit,
		"fair-waiters": &l.Fair, "local-waiters": &l.Local,
	}
	for i := 0; i+1 < len(v.Elems); i += 2 {
		if to := texts[string(v.Elems[i].Str)]; to != nil {
			*to = string(v.Elems[i+1].Str)
		} else if to := numbers[string(v.Elems[i].Str)]; to != nil {
			*to = v.Elems[i+1].Int
		} else if string(v.Elems[i].Str) == "held-ms" {
			l.HeldMS = &v.Elems[i+1].Int
		} else if string(v.Elems[i].Str) == "holders" {
			for _, h := range v.Elems[i+1].Elems {
				l.Holders = append(l.Holders, lockOf(h, "").holder)
			}
		}
	}
	l.KeyAs = base64Of(l.Key)
	return l
}

// base64Of encodes a text that is not UTF-8; of all others it is empty.
func base64Of(text string) string {
	if utf8.ValidString(text) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(text))
}

func (c *locksCommand) run(p *program) int {
	args := []string{"LOCKLIST"}
	if c.Match != "" {
		args = append(args, "MATCH", c.Match)
	}
	if c.Count != 0 {
		args = append(args, "COUNT", strconv.Itoa(c.Count))
	}
	return p.ask(c.connection, func(ctx context.Context, conn *Conn) (int, error) {
		v, err := conn.Do(ctx, args...)
		if err != nil {
			return ExitUnreachable, err
		}
		locks := []lock{}
		for _, e := range v.Elems {
			locks = append(locks, lockOf(e, ""))
		}
		if c.JSON {
			return ExitOK, p.printJSON(locks)
		}
		w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "KEY\tOWNER\tMODE\tHOLDS\tHELD\tLEASE\tFENCE\tWAITERS\tCLIENT\tNAME\tNOTE\tREENTRY")
		for _, l := range locks {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n",
				plain(l.Key), plain(l.Owner), plain(l.Mode), l.Holds, l.held(), leaseText(l.LeaseMS),
				fenceText(l.Fence), l.waiters(), plain(l.Client), plain(l.Name), plain(l.Note), plain(l.Reentry))
		}
		return ExitOK, w.Flush()
	})
}

func (c *infoCommand) run(p *program) int {
	return p.ask(c.connection, func(ctx context.Context, conn *Conn) (int, error) {
		v, err := conn.Do(ctx, "LOCKINFO", c.Key)
		if err != nil {
			return ExitUnreachable, err
		}
		if v.Null {
			if c.JSON {
				return ExitNo, p.printJSON(nil)
			}
			fmt.Fprintln(p.stdout, "free")
			return ExitNo, nil
		}
		l := lockOf(v, c.Key)
		if c.JSON {
			return ExitOK, p.printJSON(l)
		}
		w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "owner\t%s\nmode\t%s\nholds\t%d\nheld\t%s\nlease\t%s\nfence\t%s\nwaiters\t%d\n",
			plain(l.Owner), plain(l.Mode), l.Holds, l.held(), leaseText(l.LeaseMS), fenceText(l.Fence), l.waiters())
		if l.Client != "" {
			fmt.Fprintf(w, "client\t%s\nname\t%s\n", plain(l.Client), plain(l.Name))
		}
		if l.Note != "" {
			fmt.Fprintf(w, "note\t%s\n", plain(l.Note))
		}
		if l.Limit > 0 {
			fmt.Fprintf(w, "limit\t%d\n", l.Limit)
		}
		if len(l.Holders) > 1 {
			fmt.Fprintln(w, "\nHOLDER\tHOLDS\tLEASE\tFENCE\tCLIENT\tNAME\tNOTE")
			for _, h := range l.Holders {
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", plain(h.Owner), h.Holds, leaseText(h.LeaseMS),
					fenceText(h.Fence), plain(h.Client), plain(h.Name), plain(h.Note))
			}
		}
		return ExitOK, w.Flush()
	})
}

func (c *unlockCommand) run(p *program) int {
	args := []string{"FORCEUNLOCK", c.Key}
	one := c.Owner != "" || c.Fence != 0
	if one {
		args = []string{"UNLOCK", c.Key}
	}
	if c.Owner != "" {
		args = append(args, "OWNER", c.Owner)
	}
	if c.Fence != 0 {
		args = append(args, "FENCE", strconv.FormatInt(c.Fence, 10))
	}
	if c.Shared {
		args = append(args, "SHARED")
	}
	return p.ask(c.connection, func(ctx context.Context, conn *Conn) (int, error) {
		v, err := conn.Do(ctx, args...)
		if isCode(err, "NOTHELD") || isCode(err, "LOSTLEASE") {
			return ExitNo, err
		}
		if err != nil {
			return ExitUnreachable, err
		}
		words, code := "unlocked", ExitOK
		switch {
		case v.Int == 1:
		case one:
			words = "one hold released, still held"
		default:
			words, code = "free", ExitNo
		}
		if c.JSON {
			return code, p.printJSON(unlocked{Key: c.Key, KeyAs: base64Of(c.Key), Unlocked: v.Int == 1})
		}
		fmt.Fprintln(p.stdout, words)
		return code, nil
	})
}

// unlocked is the outcome of unlock.
type unlocked struct {
	Key      string `json:"key"`
	KeyAs    string `json:"key_base64,omitempty"`
	Unlocked bool   `json:"unlocked"`
}

func (p *program) printJSON(v any) error {
	e := json.NewEncoder(p.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func leaseText(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// held is how long the lock has been held.
func (l lock) held() string {
	if l.HeldMS == nil {
		return "-"
	}
	return (time.Duration(*l.HeldMS) * time.Millisecond).String()
}

// who says who has the lock, and since when, for a person who waits for it.
func (l lock) who(now time.Time) string {
	text := "owner " + plain(l.Owner)
	if l.Client != "" {
		text += ", client " + plain(l.Client)
	}
	if l.Name != "" {
		text += " (" + plain(l.Name) + ")"
	}
	if l.Note != "" {
		text += ", " + plain(l.Note)
	}
	if l.HeldMS != nil {
		held := time.Duration(*l.HeldMS) * time.Millisecond
		text += fmt.Sprintf(", since %s (%v)", now.Add(-held).Format(time.DateTime), held.Round(time.Second))
	}
	if len(l.Holders) > 1 {
		text += fmt.Sprintf(", one of %d holders", len(l.Holders))
	}
	return text
}

func (l lock) waiters() int64 { return l.Fair + l.Local }

func fenceText(fence int64) string {
	if fence == 0 {
		return "-"
	}
	return strconv.FormatInt(fence, 10)
}

// plain is a name for a terminal: a client chooses its bytes.
func plain(s string) string {
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}

// readable is the text of an error for a terminal: it may quote a name that a client has chosen.
func readable(err error) string {
	q := strconv.Quote(err.Error())
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(q[1 : len(q)-1])
}
