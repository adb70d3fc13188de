"""The HTTP API's contract: the records, requests and errors that a server and its clients share."""
