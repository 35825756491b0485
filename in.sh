n=0; while ! test -e late.ready && test $n -lt 100; do sleep 0.1; n=$((n+1)); done
while ! test -e lated.ready && test $n -lt 100; do sleep 0.1; n=$((n+1)); done
python3 srv.py in & python3 srv.py ind d & while ! test -e in.ready || ! test -e ind.ready; do sleep 0.1; done
cat >c.py <<'P'
import socket,os
def t(what,f):
    try: print(what, f() or "ok")
    except OSError as e: print(what, e)
def con(p,k=socket.SOCK_STREAM):
    s=socket.socket(socket.AF_UNIX,k); s.connect(p); s.send(b"hello"); s.close()
def snd(p):
    s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM); s.sendto(b"dgram",p)
    
t("late",lambda: con("late")); t("late abs",lambda: con(os.getcwd()+"/late"))
os.rename("late","moved"); t("moved",lambda: con("moved")); os.rename("moved","late")
t("in",lambda: con("in")); t("in abs",lambda: con(os.getcwd()+"/in"))
t("ind",lambda: con("ind",socket.SOCK_DGRAM)); t("ind sendto",lambda: snd("ind")); t("lated sendto",lambda: snd("lated")); t("lated con",lambda: con("lated",socket.SOCK_DGRAM))
t("none",lambda: con("none"))
s=socket.socket(socket.AF_UNIX); s.bind("dead"); s.close(); t("dead",lambda: con("dead"))
s=socket.socket(socket.AF_UNIX); s.bind("\0abs"); s.listen(); t("abstract",lambda: con("\0abs"))
t("long",lambda: con("x"*100))
l=socket.socket(); l.bind(("127.0.0.1",0)); l.listen(); c=socket.socket(); c.connect(l.getsockname()); print("tcp ok")
u=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); u.sendto(b"x",l.getsockname()); print("udp ok")
import time; t0=time.time()
for i in range(1000):
    c=socket.socket(); c.connect(l.getsockname()); l.accept()[0].close(); c.close()
print("tcp us",(time.time()-t0)*1000)
l=socket.socket(socket.AF_UNIX); l.bind("p"); l.listen(); t0=time.time()
for i in range(1000):
    c=socket.socket(socket.AF_UNIX); c.connect("p"); l.accept()[0].close(); c.close()
print("unix us",(time.time()-t0)*1000)
P
python3 c.py; kill %1 %2; kill $(jobs -p); rm -f p dead in ind *.ready
