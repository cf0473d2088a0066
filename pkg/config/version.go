package config

import "runtime/debug"

// version is set by the release build: -ldflags "-X .../pkg/config.version=v1.2.3".
var version string

// Version is the release this binary was built from, or its commit when it was
// built from a checkout, or "devel".
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return "devel-" + setting.Value
		}
	}
	return "devel"
}
