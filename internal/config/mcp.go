package config

import (
	"net/url"
	"regexp"
	"slices"

	"laneway/internal/secret"
)

// MCP are the MCP servers whose tools agents may call; an agent names those that it gets.
type MCP struct {
	// Servers by name. The name is in front of the names of their tools: files_read.
	Servers map[string]MCPServer `yaml:"servers"`
}

// MCPServer is one server: a program or an address.
type MCPServer struct {
	// Command is the program and its arguments; it speaks over standard input and output.
	Command []string `yaml:"command"`
	// Env are further variables of the program, Dir its working directory. Default of Dir: that of the gateway.
	Env map[string]string `yaml:"env"`
	Dir string            `yaml:"dir"`
	// URL of a server that speaks Streamable HTTP, instead of Command.
	URL string `yaml:"url"`
	// Token is sent to the URL as a bearer token. TokenEnv and TokenFile name where it is instead.
	Token     secret.Secret `yaml:"token"`
	TokenEnv  string        `yaml:"token_env"`
	TokenFile string        `yaml:"token_file"`
	// Tools that agents may call, as the server names them. Others are not offered.
	Tools []string `yaml:"tools"`
	// ReadOnly are those of them that neither create nor send. The others need the person's button where the gateway's own tools do, and are refused
	// in turns of jobs.
	ReadOnly []string `yaml:"read_only"`
	// Timeout of one call, 1s to 55s. Default 30s.
	Timeout Duration `yaml:"timeout"`
}

// serverName is shorter than other names: it is a part of the names of tools, which are bounded by what models take.
const serverName = `^[a-z0-9][a-z0-9-]{0,15}$`

func (c Config) checkMCP(root at) {
	for _, name := range sortedNames(c.MCP.Servers) {
		c.MCP.Servers[name].check(root.key("mcp").key("servers").key(name), name)
	}
	for _, id := range sortedNames(c.Agents) {
		for _, name := range c.Agents[id].MCP {
			if _, known := c.MCP.Servers[name]; !known {
				root.key("agents").key(id).key("mcp").addf("names %q, which is not in mcp.servers", name)
			}
		}
	}
}

func (s MCPServer) check(at at, name string) {
	if fits, err := regexp.MatchString(serverName, name); err != nil || !fits {
		at.addf("is no name of a server; use lower-case letters, digits and dashes, at most 16")
	}
	switch {
	case (len(s.Command) > 0) == (s.URL != ""):
		at.addf("needs either command or url")
	case s.URL != "":
		if u, err := url.Parse(s.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			at.key("url").addf("must look like https://host/path")
		}
	case s.Token.IsSet():
		at.key("token").addf("is for a url; give the program its secrets in env")
	}
	if len(s.Tools) == 0 {
		at.key("tools").addf("names no tool; list those that agents may call")
	}
	for _, one := range s.Tools {
		if full := name + "_" + one; slices.Contains(toolNames(), full) {
			at.key("tools").addf("names %q: %s is a tool of the gateway; use another name for the server", one, full)
		}
	}
	for _, one := range s.ReadOnly {
		if !slices.Contains(s.Tools, one) {
			at.key("read_only").addf("names %q, which is not in tools", one)
		}
	}
	if s.Timeout != 0 {
		at.durationBetween("timeout", s.Timeout, Duration(second), 55*Duration(second))
	}
}
