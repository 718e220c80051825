# The page listens on loopback, where it asks for no token: it is for everybody here. nginx shows it.
set -eu
nginx -e stderr -c "$PWD/nginx.conf" &
if [ -n "${SHOAL_RELAY:-}" ]; then
  exec shoal watch --serve runs/demo --swarm "${SHOAL_SWARM:-lagoon}" "$SHOAL_RELAY"
fi
exec shoal watch --serve runs/demo
