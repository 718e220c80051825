"""How `shoal watch`, `shoal human` and `shoal judge` serve strangers over HTTP without being used up by them.

places       who has a place when there are more guests than places
connections  uvicorn's connections with places, and with time limits for slow clients
server       uvicorn's server, which goes on answering while connections pour in
bodies       what a request brings, bounded in size and time
"""
