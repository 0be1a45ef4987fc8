"""Our role in Synapse's database: whether it can do more than read what the catalogue lists."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.cli.diagnosis.finding import Finding, Findings, Level
from synapse_lakehouse.rewriting.tables import TABLES
from synapse_lakehouse.source.connection import Connection
from synapse_lakehouse.source.grants import needed

_NAMED: Final = 5
"""How many of a long list a message names; the statement that mends it names all."""

_OWN_ROLE: Final = (
    "Give the lakehouse a role of its own: `lakehouse grants` prints the SQL that makes one. Name it in SYNAPSE_DSN."
)

_ATTRIBUTES: Final = """
select name from pg_roles, lateral (values ('SUPERUSER', rolsuper), ('CREATEROLE', rolcreaterole),
  ('CREATEDB', rolcreatedb), ('REPLICATION', rolreplication), ('BYPASSRLS', rolbypassrls and not exists (
    select from unnest(%s::text[]) as listed(name) join pg_class on pg_class.oid = to_regclass(name)
    where relrowsecurity))) as attribute(name, has)
where rolname = current_user and has
"""

_MEMBER_OF: Final = """
select quote_ident(granted.rolname) from pg_auth_members
join pg_roles as granted on granted.oid = roleid join pg_roles as me on me.oid = member
where me.rolname = current_user order by 1
"""

_OWNED: Final = """
with me as (select oid from pg_roles where rolname = current_user)
select pg_class.oid::regclass::text from pg_class join me on relowner = me.oid
where relkind in ('r', 'p', 'v', 'm', 'f', 'S') and relpersistence <> 't'
union all select 'schema ' || quote_ident(nspname) from pg_namespace join me on nspowner = me.oid
union all select 'database ' || quote_ident(datname) from pg_database join me on datdba = me.oid
          where datname = current_database()
order by 1
"""

_GRANTED: Final = """
with relation as (
  select pg_class.oid, case relkind when 'S' then 'sequence' else 'table' end as kind, relacl,
         array(select attname::text from pg_attribute where attrelid = pg_class.oid and attnum > 0
               and not attisdropped and relkind <> 'S' order by attnum) as columns
  from pg_class join pg_namespace on pg_namespace.oid = relnamespace
  where relkind in ('r', 'p', 'v', 'm', 'f', 'S') and nspname not in ('pg_catalog', 'information_schema')
    and nspname not like 'pg\\_%' and relowner <> to_regrole(quote_ident(current_user))
    and not exists (select from pg_depend where objid = pg_class.oid and deptype = 'e')
), granted as (
  select kind, oid::regclass::text as name, columns, true as is_whole, acl.* from relation, aclexplode(relacl) as acl
  union all
  select kind, relation.oid::regclass::text, array[attname::text], false, acl.*
  from relation join pg_attribute on attrelid = relation.oid and not attisdropped, aclexplode(attacl) as acl
  union all
  select 'schema', quote_ident(nspname), '{}', true, acl.* from pg_namespace, aclexplode(nspacl) as acl
  where privilege_type = 'CREATE' and nspowner <> to_regrole(quote_ident(current_user))
  union all
  select 'database', quote_ident(datname), '{}', true, acl.* from pg_database, aclexplode(datacl) as acl
  where privilege_type = 'CREATE' and datname = current_database() and datdba <> to_regrole(quote_ident(current_user))
)
select kind, name, columns, is_whole, privilege_type, grantee = 0 from granted
where grantee in (0, to_regrole(quote_ident(current_user))) order by privilege_type, kind, name, columns
"""
"""What was granted to our role or to everybody: columns are those of the table, or the one that was granted."""


@dataclass(frozen=True)
class _Excess:
    """Something granted beyond need: columns are those that the lakehouse must not have, none if it is all of it."""

    kind: str
    name: str
    columns: tuple[str, ...]
    is_whole: bool

    @property
    def label(self) -> str:
        return f"{self.name} ({', '.join(self.columns)})" if self.columns else self.name


def examine(connection: Connection, catalogue: Catalogue) -> Findings:
    """Everything that the role can do beyond ``catalogue``, with the statement that takes it away."""
    role = _column(connection, "select quote_ident(current_user)")[0]
    tables = [right.name for right in needed(catalogue) if right.kind == "table"]
    found = [
        *_attributes(role, _column(connection, _ATTRIBUTES, [tables])),
        *_memberships(role, _column(connection, _MEMBER_OF)),
        *_ownership(role, _column(connection, _OWNED)),
        *_grants(role, connection.execute(_GRANTED.encode()).fetchall(), catalogue),
    ]
    yield from found or [Finding(Level.OK, "role", f"{role} can read what the catalogue lists, and nothing else")]


def _attributes(role: str, attributes: Sequence[str]) -> Findings:
    if "SUPERUSER" in attributes:
        message = f"The role {role} is a superuser: it may read and write everything."
        yield Finding(Level.WARN, "role", message, _OWN_ROLE)
    elif attributes:
        message = f"The role {role} has {' and '.join(attributes)}, which reading does not take."
        yield Finding(Level.WARN, "role", message, f"As a superuser run: ALTER ROLE {role} {_without(attributes)};")


def _memberships(role: str, roles: Sequence[str]) -> Findings:
    if roles:
        message = f"The role {role} may do all that {_some(roles)} may, as a member."
        yield Finding(Level.WARN, "role", message, f"As a superuser run: REVOKE {', '.join(roles)} FROM {role};")


def _ownership(role: str, owned: Sequence[str]) -> Findings:
    if owned:
        message = f"The role {role} owns {_some(owned)}: an owner may do anything with it."
        yield Finding(Level.WARN, "role", message, _OWN_ROLE)


def _grants(role: str, granted: Iterable[tuple[Any, ...]], catalogue: Catalogue) -> Findings:
    """One finding for each privilege, kind of object and grantee."""
    wanted = {(right.kind, right.name): right.columns for right in needed(catalogue)}
    found: dict[tuple[str, str, bool], list[_Excess]] = {}
    for kind, name, columns, is_whole, privilege, to_everybody in granted:
        beyond = () if is_whole else tuple(columns)
        if privilege == "SELECT" and name in TABLES:
            continue
        if privilege == "SELECT" and (kind, name) in wanted:
            beyond = tuple(column for column in columns if column not in wanted[kind, name])
            if not beyond:
                continue
        excess = found.setdefault((privilege, kind, to_everybody), [])
        if not is_whole and excess and not excess[-1].is_whole and excess[-1].name == name:
            beyond = (*excess.pop().columns, *beyond)
        excess.append(_Excess(kind, name, beyond, is_whole))
    for (privilege, kind, to_everybody), excess in found.items():
        can = "SELECT, beyond the catalogue," if privilege == "SELECT" else privilege
        message = f"The role {role}{', like everybody,' * to_everybody} has {can} on {kind} {_some(excess)}."
        advice = f"As the owner run: {' '.join(_revokes(privilege, excess, 'PUBLIC' if to_everybody else role))}"
        if privilege == "SELECT":
            advice += f" Then grant it what it needs: `lakehouse grants --role {role}` prints the SQL."
        elif kind == "schema" and to_everybody:
            advice += " Before that, grant the same to Synapse's own role by name, which needs it."
        yield Finding(Level.WARN, "role", message, advice)


def _revokes(privilege: str, excess: Sequence[_Excess], role: str) -> Iterator[str]:
    kind = "" if excess[0].kind == "table" else f"{excess[0].kind.upper()} "
    if whole := [one.name for one in excess if one.is_whole]:
        yield f"REVOKE {privilege} ON {kind}{', '.join(whole)} FROM {role};"
    for one in excess:
        if not one.is_whole:
            yield f"REVOKE {privilege} ({', '.join(one.columns)}) ON {one.name} FROM {role};"


def _without(attributes: Sequence[str]) -> str:
    return " ".join(f"NO{one}" for one in attributes)


def _some(excess: Sequence[_Excess] | Sequence[str]) -> str:
    names = [one if isinstance(one, str) else one.label for one in excess]
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _column(connection: Connection, query: str, parameters: Sequence[Any] = ()) -> list[str]:
    return [str(value) for (value,) in connection.execute(query.encode(), parameters)]
