package rule

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/rung-dev/rung"
)

// Caps on a policy file. The depth is what the format needs with a little to spare; a parser that recurses is not asked for
// more.
const (
	MaxFile   = 1 << 20
	maxDepth  = 8
	maxIndent = 64
)

// File is a policy file. A part that the file does not have is nil.
type File struct {
	Egress *rung.Egress
}

// ParsePolicy reads a policy file: YAML, one document, and nothing in it that this version does not know. Anchors, aliases,
// tags, merge keys and directives are refused: a policy is what is written, without expansion. Errors name line and column.
func ParsePolicy(text []byte) (File, error) {
	if len(text) > MaxFile {
		return File{}, rung.Errorf(rung.KindInvalid, "the policy file is larger than 1 MiB")
	}
	if err := checkText(text); err != nil {
		return File{}, err
	}
	body, err := parseYAML(string(text))
	if err != nil || body == nil {
		return File{}, err
	}
	var f File
	err = readMap(body, "a policy", []key{
		{"version", func(n ast.Node) error { return readVersion(n) }},
		{"egress", func(n ast.Node) error {
			e, err := readEgress(n)
			f.Egress = &e
			return err
		}},
	})
	if err != nil {
		return File{}, err
	}
	return f, nil
}

// checkText refuses what YAML 1.2 calls not printable (section 5.1), which parsers and editors show differently.
func checkText(text []byte) error {
	line, column := 1, 1
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		i += size
		switch {
		case r == utf8.RuneError && size == 1:
			return rung.Errorf(rung.KindInvalid, "policy line %d, column %d: not UTF-8", line, column)
		case r == '\n':
			line, column = line+1, 0
		case r < 0x20 && r != '\t' && r != '\r', r >= 0x7f && r < 0xa0, r == 0x2028, r == 0x2029, r == 0xfeff, r == 0xfffe, r == 0xffff:
			return rung.Errorf(rung.KindInvalid, "policy line %d, column %d: a character that is not printable", line, column)
		}
		column++
	}
	return nil
}

// parseYAML returns the one document's content, or nil for an empty file.
func parseYAML(text string) (body ast.Node, err error) {
	defer func() {
		if r := recover(); r != nil { // the parser's own bugs are an unreadable file, and no end of the gate
			body, err = nil, rung.Errorf(rung.KindInvalid, "the policy file cannot be read as YAML")
		}
	}()
	tokens := lexer.Tokenize(text)
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, syntaxError(err)
	}
	switch len(file.Docs) {
	case 0:
		return nil, nil
	case 1:
		return file.Docs[0].Body, nil
	}
	return nil, rung.Errorf(rung.KindInvalid, "the policy file has several documents")
}

// syntaxError takes the parser's message without its excerpt of the source.
func syntaxError(err error) error {
	var located interface {
		error
		GetMessage() string
		GetToken() *token.Token
	}
	if errors.As(err, &located) && located.GetToken() != nil {
		return tokenError(located.GetToken(), "%s", located.GetMessage())
	}
	return rung.Errorf(rung.KindInvalid, "the policy file is no YAML")
}

// checkTokens refuses what a policy has no use for, before anything recurses over it.
func checkTokens(tokens token.Tokens) error {
	c := tokenCheck{}
	for _, tk := range tokens {
		if err := c.next(tk); err != nil {
			return err
		}
	}
	return nil
}

type tokenCheck struct {
	depth         int // of brackets
	line          int
	keys, entries int // on this line, outside brackets
	started       bool
}

func (c *tokenCheck) next(tk *token.Token) error {
	if tk.Position.Line != c.line {
		c.line, c.keys, c.entries = tk.Position.Line, 0, 0
	}
	switch tk.Type {
	case token.CommentType:
		return nil
	case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType, token.DirectiveType, token.MappingKeyType:
		return tokenError(tk, "anchors, aliases, tags, directives and complex keys are not read").WithHint("write it out")
	case token.DocumentHeaderType, token.DocumentEndType:
		if c.started {
			return tokenError(tk, "a policy file has one document")
		}
	case token.MappingStartType, token.SequenceStartType:
		c.depth++
	case token.MappingEndType, token.SequenceEndType:
		c.depth--
	case token.SequenceEntryType:
		c.entries++
	case token.MappingValueType:
		if c.depth == 0 {
			c.keys++
		}
	}
	c.started = true
	if c.depth > maxDepth || c.entries > 1 || c.keys > 1 || tk.Position.IndentNum > maxIndent {
		return tokenError(tk, "nested deeper than a policy is")
	}
	return nil
}

// tokenError is an error with a place in the file.
func tokenError(tk *token.Token, format string, args ...any) *rung.Error {
	line, column := 1, 1
	if tk != nil && tk.Position != nil {
		line, column = tk.Position.Line, tk.Position.Column
	}
	return rung.Errorf(rung.KindInvalid, "policy line %d, column %d: "+format, append([]any{line, column}, args...)...)
}

func nodeError(n ast.Node, format string, args ...any) *rung.Error {
	return tokenError(n.GetToken(), format, args...)
}

// kindOf names a node for an error.
func kindOf(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "a mapping"
	case ast.SequenceType:
		return "a list"
	case ast.NullType:
		return "nothing"
	default:
		return strings.ToLower(n.Type().String())
	}
}
