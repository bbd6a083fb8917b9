// Package order is what the hostile-egress tests and their probe say to each other: the tests order cases, the probe says
// what came of each.
package order

// Case is one thing to try. {t} in Host, Send and DNS stands for the case's token, which the test fills in.
type Case struct {
	Name  string `json:"name"`
	Token string `json:"token"` // unique; whatever leaves carries it
	Op    string `json:"op"`    // see package probe
	Host  string `json:"host,omitempty"`
	Port  int    `json:"port,omitempty"`
	Send  []byte `json:"send,omitempty"`
	TLS   *TLS   `json:"tls,omitempty"`
	DNS   *DNS   `json:"dns,omitempty"`
	Frame *Frame `json:"frame,omitempty"`
	Proto int    `json:"proto,omitempty"` // of a raw socket
	Count int    `json:"count,omitempty"` // how often or how much
	Wait  int    `json:"wait,omitempty"`  // milliseconds for an answer; 0: the operation's own
}

// TLS says how a connection is to be opened.
type TLS struct {
	SNI   string   `json:"sni,omitempty"` // "-": none
	ALPN  []string `json:"alpn,omitempty"`
	ECH   bool     `json:"ech,omitempty"`   // with Raw: offer an encrypted ClientHello beside it
	Raw   bool     `json:"raw,omitempty"`   // only send a ClientHello built by hand, with SNI's bytes and the token
	Split int      `json:"split,omitempty"` // bytes per record of a ClientHello built by hand
	SNIs  []string `json:"snis,omitempty"`  // several names in one extension
}

// DNS is one question.
type DNS struct {
	Server string `json:"server,omitempty"` // ADDR:PORT; else the resolver that the sandbox is told of
	TCP    bool   `json:"tcp,omitempty"`
	Name   string `json:"name"`
	Type   uint16 `json:"type,omitempty"`   // A without
	Class  uint16 `json:"class,omitempty"`  // IN without
	Option string `json:"option,omitempty"` // data of an EDNS option
	Code   uint16 `json:"code,omitempty"`   // that option's code
	Second string `json:"second,omitempty"` // another question in the same message
	Opcode int    `json:"opcode,omitempty"`
	Extra  string `json:"extra,omitempty"` // a TXT record in the additional section
	Reply  bool   `json:"reply,omitempty"` // claims to be an answer
	Bare   bool   `json:"bare,omitempty"`  // Name's bytes are one label as they are
}

// Frame is one Ethernet frame built by hand. Empty members are what an honest guest would send.
type Frame struct {
	SrcMAC string `json:"src_mac,omitempty"`
	DstMAC string `json:"dst_mac,omitempty"`
	Type   int    `json:"type,omitempty"` // EtherType
	Src    string `json:"src,omitempty"`
	Dst    string `json:"dst"`
	Proto  int    `json:"proto,omitempty"` // UDP without
	Port   int    `json:"port,omitempty"`
	Kind   string `json:"kind,omitempty"` // see package probe
}

// Order is a batch.
type Order struct {
	CA      string `json:"ca"`      // PEM of the stand-ins' authority
	Control bool   `json:"control"` // this is the control, without a wall
	Serial  bool   `json:"serial"`  // one case after the other
	Cases   []Case `json:"cases"`
}

// Result is what the probe says of one case. It is no proof of anything: the stand-ins have that.
type Result struct {
	Name   string `json:"name"`
	Got    string `json:"got,omitempty"` // the beginning of what came back
	Err    string `json:"err,omitempty"`
	Detail string `json:"detail,omitempty"`
}
