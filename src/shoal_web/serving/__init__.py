"""What `shoal watch`, `shoal human` and `shoal judge` share: HTTP for strangers, within bounds.

quota        which clients stay when there are too many
connections  uvicorn's connections with a quota, and with time limits for slow clients
server       uvicorn's server, which keeps answering while connections pour in
bodies       a request's body, bounded in size and time
host         where a page listens, and the token that opens it
guard        who may see a page, and what a browser may do with it
pages        a page's files and JSON answers
"""
