#!/bin/sh
# How many members a group needs: one for each so many unread messages, from 1 to a maximum.
#     wanted-members.sh billing orders 3000 8
# Prints the number. Prints nothing and ends with 3 if the lag is unknown: then leave everything as it is.
set -eu
group=$1 topic=$2 each=$3 most=$4

lag=$(rocketrio lag "$group" --topic "$topic" --once -f '%f{lag}\n') || exit 3
case $lag in
'' | *[!0-9]*) exit 3 ;; # A word, or no row at all.
esac
wanted=$(((lag + each - 1) / each))
[ "$wanted" -ge 1 ] || wanted=1
[ "$wanted" -le "$most" ] || wanted=$most
echo "$wanted"
