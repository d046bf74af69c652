import xebec

xebec.serve(lambda batch: batch)
