package teste2e

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Opcodes of frames.
const (
	opText  = 0x1
	opClose = 0x8
	opPing  = 0x9
)

const (
	fin = 0x80
)

// bare is a minimal WebSocket: it needs almost no resources, and it can send frames that no library would.
type bare struct {
	net.Conn

	r *bufio.Reader
}

// upgrade opens a socket and does not authenticate.
func upgrade(addr string) (*bare, error) {
	conn, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		return nil, err
	}
	b := &bare{Conn: conn, r: bufio.NewReaderSize(conn, 256)}
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	_, err = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: "+addr+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if err == nil {
		err = b.upgraded()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return b, nil
}

// upgraded reads the response to an upgrade.
func (b *bare) upgraded() error {
	resp, err := http.ReadResponse(b.r, nil)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("the upgrade was answered %s", resp.Status)
	}
	return nil
}

// login opens a socket with every scope. Afterwards it has no deadline.
func login(addr, token string) (*bare, error) {
	b, err := upgrade(addr)
	if err != nil {
		return nil, err
	}
	err = b.request("c", "connect", map[string]any{
		"minProtocol": 4, "maxProtocol": 4, "auth": map[string]string{"token": token},
		"scopes": []string{"operator.read", "operator.write", "operator.admin"},
		"client": map[string]string{"id": "bare", "version": "1", "platform": "test", "mode": "test"},
	})
	if err == nil {
		_, err = b.answer("c")
	}
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	_ = b.SetDeadline(time.Time{})
	return b, nil
}

// frame writes one masked frame with the given header byte and declared length.
func (b *bare) frame(first byte, declared int, payload []byte) error {
	out := []byte{first}
	switch {
	case declared < 126:
		out = append(out, 0x80|byte(declared))
	case declared < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(declared))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|127), uint64(declared))
	}
	var mask [4]byte
	_, _ = rand.Read(mask[:])
	out = append(out, mask[:]...)
	for i, c := range payload {
		out = append(out, c^mask[i&3])
	}
	_, err := b.Write(out)
	return err
}

// text writes a complete text message.
func (b *bare) text(s string) error { return b.frame(fin|opText, len(s), []byte(s)) }

func (b *bare) request(id, method string, params any) error {
	raw, err := json.Marshal(map[string]any{"type": "req", "id": id, "method": method, "params": params})
	if err != nil {
		return err
	}
	return b.text(string(raw))
}

// closedError is the close frame of the server.
type closedError struct {
	code int
	text string
}

// Error returns code and reason.
func (c *closedError) Error() string { return "closed " + strconv.Itoa(c.code) + " " + c.text }

// next reads one message of the server and answers pings. A close frame is a *closedError.
func (b *bare) next() ([]byte, error) {
	for {
		var head [2]byte
		if _, err := io.ReadFull(b.r, head[:]); err != nil {
			return nil, err
		}
		n := int(head[1] & 0x7f)
		switch n {
		case 126:
			var l [2]byte
			if _, err := io.ReadFull(b.r, l[:]); err != nil {
				return nil, err
			}
			n = int(binary.BigEndian.Uint16(l[:]))
		case 127:
			var l [8]byte
			if _, err := io.ReadFull(b.r, l[:]); err != nil {
				return nil, err
			}
			n = int(binary.BigEndian.Uint64(l[:]))
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(b.r, data); err != nil {
			return nil, err
		}
		switch head[0] & 0x0f {
		case opPing:
			_ = b.frame(fin|0xA, len(data), data)
		case opClose:
			if n < 2 {
				return nil, &closedError{}
			}
			return nil, &closedError{int(binary.BigEndian.Uint16(data)), string(data[2:])}
		case opText:
			return data, nil
		}
	}
}

// until reads until a message contains all of the strings.
func (b *bare) until(texts ...string) ([]byte, error) {
	for {
		data, err := b.next()
		if err != nil {
			return nil, err
		}
		found := true
		for _, t := range texts {
			found = found && strings.Contains(string(data), t)
		}
		if found {
			return data, nil
		}
	}
}

// answer reads the answer to a request; a refusal is a *WireError.
func (b *bare) answer(id string) (json.RawMessage, error) {
	data, err := b.until(`"type":"res"`, `"id":"`+id+`"`)
	if err != nil {
		return nil, err
	}
	var r Response
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if !r.OK {
		return nil, r.Error
	}
	return r.Payload, nil
}

// stillOpen is the result of end for a connection that has not ended in time.
const stillOpen = -1

// end reads until the connection has ended and returns the close code; 0 = it ended without a close frame.
func (b *bare) end(limit time.Duration) int {
	_ = b.SetReadDeadline(time.Now().Add(limit))
	for {
		_, err := b.next()
		var closed *closedError
		var late net.Error
		switch {
		case errors.As(err, &closed):
			return closed.code
		case errors.As(err, &late) && late.Timeout():
			return stillOpen
		case err != nil:
			return 0
		}
	}
}
