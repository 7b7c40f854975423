module gic

go 1.25
