package fulfil

import (
	"encoding/base64"
	"net/http"
	"testing"
	"time"
)

// The vector of the specification's own libraries.
func TestTheSignatureIsThatOfTheSpecification(t *testing.T) {
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSigner([][]byte{key})
	if err != nil {
		t.Fatal(err)
	}
	header := make(http.Header)
	err = s.sign(header, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"webhook-id":        "msg_p5jXN8AQM9LWM0D4loKWxJek",
		"webhook-timestamp": "1614265330",
		"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestAnEmptyKeyIsRefused(t *testing.T) {
	if _, err := newSigner([][]byte{[]byte("a good key"), nil}); err == nil {
		t.Error("an empty key signs")
	}
}
