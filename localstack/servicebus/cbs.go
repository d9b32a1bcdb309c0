package servicebus

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// holdsKey says whether a client that shows name and key may do all that the key
// allows. Without keys of its own the server takes any.
func (s *Server) holdsKey(name, key string) bool {
	if len(s.keys) == 0 {
		return true
	}
	k, ok := s.keys[name]
	return ok && hmac.Equal([]byte(k), []byte(key))
}

// authorized says whether a client may attach to an address: it has put a token
// for it, or has shown a key, or nobody needs one.
func (s *Server) authorized(c *conn, address string) bool {
	entity := entityOf(address)
	return len(s.keys) == 0 || c.keyed || entity == "" || c.claims[entity]
}

// entityOf is the key of the entity that an address or audience belongs to: "" for
// $cbs.
func entityOf(address string) string {
	k := key(address)
	if k == "$cbs" {
		return ""
	}
	return strings.TrimSuffix(strings.TrimSuffix(k, "$management"), "/")
}

// checkToken returns the HTTP status of a token for an audience, and why it isn't
// taken. The token's own time is the real one, as it is the client's who signed.
func (s *Server) checkToken(token, audience string) (status int, text string) {
	if len(s.keys) == 0 {
		return 202, "Accepted"
	}
	fields, ok := strings.CutPrefix(token, "SharedAccessSignature ")
	if !ok {
		return 401, "InvalidSignature: the token is no shared access signature."
	}
	var sr, sig, se, skn string
	for _, f := range strings.Split(fields, "&") {
		k, v, _ := strings.Cut(f, "=")
		switch k {
		case "sr":
			sr = v
		case "sig":
			sig = v
		case "se":
			se = v
		case "skn":
			skn = v
		}
	}
	if name, err := url.QueryUnescape(skn); err == nil {
		skn = name
	}
	secret, ok := s.keys[skn]
	if !ok {
		return 401, "InvalidSignature: the token has an invalid signature."
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(sr + "\n" + se))
	given, err := url.QueryUnescape(sig)
	if err != nil || !hmac.Equal([]byte(given), []byte(base64.StdEncoding.EncodeToString(mac.Sum(nil)))) {
		return 401, "InvalidSignature: the token has an invalid signature."
	}
	until, err := strconv.ParseInt(se, 10, 64)
	if err != nil || time.Unix(until, 0).Before(time.Now()) {
		return 401, "ExpiredToken: the token is expired."
	}
	scope, err := url.QueryUnescape(sr)
	if !strings.Contains(scope, "://") && strings.Contains(strings.ToLower(audience), "://"+strings.ToLower(scope)) {
		scope = "" // the namespace as a whole, by its host
	}
	if err != nil || !within(key(audience), key(scope)) {
		return 401, "InvalidAudience: the token is not for '" + audience + "'."
	}
	return 202, "Accepted"
}

// within says whether a path is at or below a scope.
func within(path, scope string) bool {
	path, _, _ = strings.Cut(path, "?")
	scope, _, _ = strings.Cut(scope, "?")
	return scope == "" || path == scope || strings.HasPrefix(path, scope+"/")
}
