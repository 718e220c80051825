"""What `shoal watch`, `shoal human` and `shoal judge` share.

server  where a page listens, the token that opens it, and uvicorn, which serves it until a signal stops it
guard   who may see a page, who may change something, and what a browser may do with it
pages   a page's files and JSON answers, and the bounded body of a request
"""
