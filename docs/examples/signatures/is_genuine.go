package signatures

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func IsGenuine(secret string, headers http.Header, body []byte, now time.Time) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	sent := headers.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if age := now.Unix() - seconds; err != nil || age > 300 || age < -300 {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(headers.Get("webhook-id") + "." + sent + "."))
	mac.Write(body)
	expected := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, given := range strings.Split(headers.Get("webhook-signature"), " ") {
		if hmac.Equal([]byte(given), []byte(expected)) {
			return true
		}
	}
	return false
}
