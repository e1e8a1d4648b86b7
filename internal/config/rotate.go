package config

import (
	"errors"

	"laneway/internal/secret"
)

// Reread reads again the files of callers' secrets: those that were named, and the data directory's own. A file that is missing, empty,
// accessible to others, or whose secret is too weak for a public address changes nothing: the current secret is kept, and the error
// ([FaultsError]) has a sentence for it. The returned credentials are valid in either case. Call it after Prepare, from one goroutine at a
// time.
func (p *Plan) Reread() (Credentials, error) {
	var faults FaultsError
	creds := *p.creds.Load()
	for _, f := range p.callerFiles(&creds) {
		read, err := p.rereadOne(f)
		if refused, ok := errors.AsType[FaultsError](err); ok {
			faults = append(faults, refused...)
			continue
		}
		*f.secret = read
	}
	p.creds.Store(&creds)
	return creds, faults.err()
}

// callerFile is a file with a secret that callers present.
type callerFile struct {
	name, path string
	secret     *secret.Secret
}

func (p *Plan) callerFiles(creds *Credentials) []callerFile {
	files := []callerFile{
		{"token", p.secretFile["token"], &creds.Token},
		{"password", p.secretFile["password"], &creds.Password},
		{"write token", p.secretFile["write_token"], &creds.WriteToken},
		{"read token", p.secretFile["read_token"], &creds.ReadToken},
	}
	if p.TokenFile != "" {
		files[0].path = p.TokenFile
	}
	given := files[:0]
	for _, f := range files {
		if f.path != "" {
			given = append(given, f)
		}
	}
	return given
}

func (p *Plan) rereadOne(f callerFile) (secret.Secret, error) {
	read, err := readToken(f.path, p.as)
	if err != nil {
		return secret.Secret{}, err
	}
	if public := p.cfg.PublicListen(); public != "" && !Strong(read) {
		return secret.Secret{}, refuse("the %s in %s is too weak for %s; use 32 or more random characters", f.name, f.path, public)
	}
	return read, nil
}

// Rereads reports whether the setting is a caller's secret from a file, which a running process reads again.
func (l *Loaded) Rereads(path string) bool {
	switch path {
	case "token", "password", "write_token", "read_token":
		return l.secretFile[path] != ""
	default:
		return false
	}
}
