module github.com/rung-dev/rung

go 1.26.8
