package command

import (
	"maps"
	"strconv"

	"laneway/internal/agent"
)

// environment returns the variables of the program of one turn; dir is its directory for files, or "".
func (r *Runner) environment(req agent.Request, dir string, access agent.ToolAccess) map[string]string {
	env := maps.Clone(r.env)
	env["LANEWAY_SESSION"] = req.Session.String()
	env["LANEWAY_RUN_ID"] = req.RunID
	env["LANEWAY_AGENT"] = req.Session.Agent
	env["LANEWAY_ATTEMPT"] = strconv.Itoa(req.Attempt)
	env["LANEWAY_IDEMPOTENCY_KEY"] = req.IdempotencyKey
	if access.Token != "" {
		env["LANEWAY_MCP_URL"], env["LANEWAY_MCP_TOKEN"] = access.URL, access.Token
	}
	if dir != "" {
		env["LANEWAY_OUTPUT_DIR"] = dir
	}
	return env
}
