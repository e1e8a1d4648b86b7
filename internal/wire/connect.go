package wire

import "encoding/json"

// MethodConnect is the first request of every connection.
const MethodConnect = "connect"

// Capabilities that a client can name in connect.
const (
	CapExtended   = "laneway-ext" // the client understands the extended view
	CapToolEvents = "tool-events" // the client wants the steps of tool calls
	CapCronBrief  = "cron-brief"  // the client wants events about jobs without the job, its message and its answer, and at most 20 of them a second
)

// RoleOperator is the only role of a connection.
const RoleOperator = "operator"

// Challenge is the payload of the event connect.challenge, the first frame of every connection.
type Challenge struct {
	Nonce string `json:"nonce"` // a random value; the client need not use it
	TS    int64  `json:"ts"`    // the time of the gateway in Unix milliseconds
}

// ConnectParams are the parameters of connect.
type ConnectParams struct {
	_           struct{}      `open:"true"`
	MinProtocol int64         `json:"minProtocol" rule:"required,min=1"` // the oldest version that the client speaks
	MaxProtocol int64         `json:"maxProtocol" rule:"required,min=1"` // the newest version that the client speaks
	Client      ConnectClient `json:"client" rule:"required"`            // what the client is
	Role        string        `json:"role,omitempty"`                    // operator, the default and the only role
	Scopes      []string      `json:"scopes,omitempty" rule:"max=64"`    // the scopes that the client requests; absent or empty = no scope is granted
	Caps        []string      `json:"caps,omitempty" rule:"max=64"`      // the capabilities of the client: laneway-ext, tool-events, cron-brief
	Auth        ConnectAuth   `json:"auth,omitzero"`                     // the credential
}

// ConnectClient describes a client.
type ConnectClient struct {
	_        struct{} `open:"true"`
	ID       string   `json:"id" rule:"required,max=64,pattern=^[a-z0-9][a-z0-9._-]*$"`                // the name of the program
	Version  string   `json:"version" rule:"required,min=1,max=64"`                                    // its version
	Platform string   `json:"platform" rule:"required,min=1,max=64"`                                   // its operating system
	Mode     string   `json:"mode" rule:"required,enum=webchat|cli|ui|backend|node|worker|probe|test"` // what it is used for; a probe may speak an old version
}

// ConnectAuth is the credential of a connection.
type ConnectAuth struct {
	_        struct{} `open:"true"`
	Token    string   `json:"token,omitempty"`    // a token of the gateway
	Password string   `json:"password,omitempty"` // the password of the gateway
}

// HelloOK is the result of connect. It is in the standard view, except for the name of the credential.
type HelloOK struct {
	Type     string        `json:"type" rule:"enum=hello-ok"` // always hello-ok
	Protocol int           `json:"protocol"`                  // the version that the connection speaks
	Server   HelloServer   `json:"server"`                    // which gateway it is
	Features HelloFeatures `json:"features"`                  // what it can do
	Snapshot HelloSnapshot `json:"snapshot"`                  // how it is now
	Auth     HelloAuth     `json:"auth"`                      // what the connection may do
	Policy   HelloPolicy   `json:"policy"`                    // the bounds of the connection
}

// HelloServer names the gateway.
type HelloServer struct {
	Version string `json:"version"` // of laneway
	BootID  string `json:"bootId"`  // of this start of the gateway
	ConnID  string `json:"connId"`  // of this connection, as in the log
}

// HelloFeatures lists what the gateway supports.
type HelloFeatures struct {
	Methods      []string `json:"methods"`      // all names of the method table
	Events       []string `json:"events"`       // all events
	Capabilities []string `json:"capabilities"` // the capabilities that laneway adds
}

// HelloSnapshot is the state at the moment of the connect.
type HelloSnapshot struct {
	Presence        []string        `json:"presence"`                            // always empty
	Health          json.RawMessage `json:"health"`                              // as the result of health, in the standard view
	StateVersion    StateVersion    `json:"stateVersion"`                        // the version of this state
	UptimeMs        int64           `json:"uptimeMs"`                            // since the start of the gateway
	SessionDefaults SessionDefaults `json:"sessionDefaults"`                     // defaults for the parts that session keys may leave out
	AuthMode        string          `json:"authMode" rule:"enum=token|password"` // how clients authenticate
}

// SessionDefaults has the defaults for the parts of a session key that may be left out.
type SessionDefaults struct {
	DefaultAgentID string `json:"defaultAgentId"` // the agent of a key that names none
	MainKey        string `json:"mainKey"`        // the short name of the main session: main
	MainSessionKey string `json:"mainSessionKey"` // its whole key
	Scope          string `json:"scope"`          // always per-sender
}

// HelloAuth is what the connection may do.
type HelloAuth struct {
	Role   string   `json:"role" rule:"enum=operator"` // always operator
	Scopes []string `json:"scopes"`                    // the scopes that were granted
	Name   string   `json:"name,omitempty"`            // Extended: the name of the credential
}

// HelloPolicy has the bounds of the connection.
type HelloPolicy struct {
	MaxPayload       int64 `json:"maxPayload"`       // the largest message of the client, in bytes
	MaxBufferedBytes int   `json:"maxBufferedBytes"` // the send buffer of the gateway for this connection
	TickIntervalMs   int64 `json:"tickIntervalMs"`   // the interval of tick events; a client disconnects after twice this time without an event
}
