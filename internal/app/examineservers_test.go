package app

import (
	"os"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/tool/external"
)

func TestServersAreExaminedWithAndWithoutAGateway(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Config{
		Agents: map[string]config.Agent{"main": {MCP: []string{"files", "web"}}},
		MCP: config.MCP{Servers: map[string]config.MCPServer{
			"files": {Command: []string{self}, Tools: []string{"read", "write"}}, "web": {URL: "http://127.0.0.1:1", Tools: []string{"search"}},
			"idle": {Command: []string{"/does/not/exist"}, Tools: []string{"read"}},
		}},
	}
	state := func(name, state, last string, tools ...string) []chat.ToolServer {
		return []chat.ToolServer{{Name: name, State: state, LastError: last, Tools: tools}}
	}
	for _, tt := range []struct {
		what   string
		states []chat.ToolServer
		weight Weight
		text   string
	}{
		{"no gateway, a program", nil, Fine, "MCP server files: the program " + self + " exists"},
		{"no gateway, an address", nil, Fine, "MCP server web: not checked: no gateway answers"},
		{"no agent has it", nil, Warning, "MCP server idle: no agent has it, so it is not connected"},
		{"another gateway", []chat.ToolServer{}, Warning, "MCP server files: the running gateway does not have it"},
		{"connected", state("files", external.StateConnected, "", "files_read", "files_write"), Fine, "MCP server files: it is connected, with 2 tools"},
		{
			"a tool is left out",
			[]chat.ToolServer{{Name: "files", State: external.StateConnected, Tools: []string{"files_read"}, LeftOut: []chat.LeftOutTool{{Name: "write", Why: "models cannot use its schema"}}}},
			Warning, "MCP server files: it is connected; agents do not have write (models cannot use its schema)",
		},
		{
			"a tool has another name",
			[]chat.ToolServer{{Name: "files", State: external.StateConnected, Tools: []string{"files_read", "files_wr_ite"}, Renamed: []chat.RenamedTool{{Name: "files_wr_ite", Own: "wr.ite"}}}},
			Fine, "MCP server files: it is connected, with 2 tools",
		},
		{"failed", state("web", external.StateFailed, "no route"), Warning, "MCP server web: it is not connected: no route"},
		{"suspended", state("web", external.StateSuspended, ""), Warning, "MCP server web: it has failed several times and receives no calls for a while"},
		{"connecting", state("web", external.StateConnecting, ""), Warning, "MCP server web: it is being connected"},
	} {
		found := false
		for _, f := range ExamineServers(cfg, tt.states, os.LookupEnv) {
			if f.Text == tt.text {
				found = true
				if f.Weight != tt.weight || (f.Weight != Fine && f.Cure == "") {
					t.Errorf("%s: got %+v", tt.what, f)
				}
			}
		}
		if !found {
			t.Errorf("%s: no finding %q in %+v", tt.what, tt.text, ExamineServers(cfg, tt.states, os.LookupEnv))
		}
	}
}
