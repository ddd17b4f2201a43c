module github.com/sniblock/snib

go 1.26
