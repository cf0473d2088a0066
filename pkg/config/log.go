package config

// Log says what is logged, and how it looks.
type Log struct {
	Level  string `name:"log-level" default:"info" enum:"debug,info,warn,error" help:"Least severe message that is logged: debug, info, warn or error. debug logs every request."`
	Format string `name:"log-format" default:"${logformat=json}" enum:"text,json" help:"Form of a log line: text or json."`
}
