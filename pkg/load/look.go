package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Look asks for the sale once, before a crowd is sent: its error says that nobody
// listens at the address, or that there is no such sale.
func Look(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	sender, err := newSender(cfg)
	if err != nil {
		return err
	}
	defer sender.close()
	ctx, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(sender.target, "/grabs"), nil)
	if err != nil {
		return fmt.Errorf("load: look at sale %s: %w", cfg.SaleID, err)
	}
	response, err := sender.client.Do(request)
	if err != nil {
		if failed, ok := err.(*url.Error); ok { //nolint:errorlint // Do returns it bare
			err = failed.Err
		}
		return fmt.Errorf("load: look at sale %s at %s: %w", cfg.SaleID, request.URL.Host, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("load: look at sale %s: %w", cfg.SaleID, err)
	}
	a := readAnswer(response, text)
	return fmt.Errorf("load: look at sale %s: %s", cfg.SaleID, a.problem)
}
