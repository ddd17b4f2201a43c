#!/bin/sh
# Makes the user of snib.service. Where there is no systemd, nothing needs it.
if command -v systemd-sysusers >/dev/null; then systemd-sysusers snib.conf; fi
