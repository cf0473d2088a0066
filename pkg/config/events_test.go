package config

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

func webhookSecret(bytes int) string {
	return webhookSecretPrefix + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", bytes)))
}

func TestWebhookSecretsAreRead(t *testing.T) {
	for text, want := range map[string]int{
		"":                0,
		webhookSecret(24): 1,
		webhookSecret(32) + ", " + webhookSecret(64): 2,
	} {
		w := Webhooks{Secrets: text}
		keys, err := w.Keys()
		if err != nil || len(keys) != want {
			t.Errorf("%d secrets: %d keys, %v", want, len(keys), err)
		}
	}
	if keys, _ := (&Webhooks{Secrets: webhookSecret(24)}).Keys(); !bytes.Equal(keys[0], []byte(strings.Repeat("k", 24))) {
		t.Errorf("the key is %q", keys[0])
	}
}

func TestABadWebhookSecretIsRefusedAndNotQuoted(t *testing.T) {
	short := webhookSecret(23)
	for _, text := range []string{"whsec_", "whsec_%%%", short, webhookSecret(65), strings.TrimPrefix(webhookSecret(32), "whsec_"), webhookSecret(32) + ","} {
		w := Webhooks{Secrets: text}
		err := w.Validate()
		if err == nil || !strings.Contains(err.Error(), "--webhook-secrets") {
			t.Errorf("%q: %v", text, err)
		}
		if code := strings.TrimPrefix(text, "whsec_"); err != nil && len(code) > 3 && strings.Contains(err.Error(), code) {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
}
