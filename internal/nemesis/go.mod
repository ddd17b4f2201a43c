module github.com/sniblock/snib/internal/nemesis

go 1.26.0
