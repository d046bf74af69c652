import xebec

xebec.serve(lambda batch: batch)  # batch: a list of bytes objects
