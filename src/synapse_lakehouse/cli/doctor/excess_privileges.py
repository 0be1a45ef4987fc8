"""Check that our roles in Synapse's database have no unneeded privileges."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.cli.doctor import system_grants
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.compressor.postgres.progress_tables import PROGRESS_TABLES, list_privileges
from synapse_lakehouse.postgres.access.grants import list_allowed_grants
from synapse_lakehouse.postgres.access.public_rights import PUBLIC_RIGHTS
from synapse_lakehouse.postgres.connection import Connection

_MAX_NAMES: Final = 5
"""Number of names in a message; the REVOKE statement contains all names."""

_OWN_ROLE: Final = "Create a separate role for the lakehouse: `{script}` prints the SQL."

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
"""Privileges of our role and of PUBLIC, with all columns of the table, or the granted column."""

_DEFINERS: Final = """
select pg_proc.oid::regprocedure::text from pg_proc join pg_namespace on pg_namespace.oid = pronamespace
where prosecdef and nspname not in ('pg_catalog', 'information_schema') and nspname not like 'pg\\_%'
  and proowner <> to_regrole(quote_ident(current_user)) and has_function_privilege(pg_proc.oid, 'execute')
  and has_schema_privilege(pg_namespace.oid, 'usage')
  and not exists (select from pg_depend where objid = pg_proc.oid and deptype = 'e')
order by 1
"""
"""SECURITY DEFINER functions. PostgreSQL grants EXECUTE on new functions to PUBLIC."""

_DATABASES: Final = """
select quote_ident(datname) from pg_database
where datallowconn and datname <> current_database() and has_database_privilege(oid, 'connect') order by 1
"""

AllowedPrivileges = Mapping[tuple[str, str, str], tuple[str, ...] | None]
"""Needed columns by privilege, kind of object and name; None: the whole object."""


@dataclass(frozen=True)
class _Excess:
    """An unneeded privilege: on ``columns``, or on the whole object if ``columns`` is empty."""

    kind: str
    name: str
    columns: tuple[str, ...]
    is_whole: bool

    @property
    def label(self) -> str:
        return f"{self.name} ({', '.join(self.columns)})" if self.columns else self.name


def reader_privileges(catalogue: Catalogue) -> AllowedPrivileges:
    """Return the privileges that the reader may need: to read the tables of ``catalogue``, and to serve replication."""
    progress: AllowedPrivileges = {("SELECT", "table", name): None for name in PROGRESS_TABLES}
    rights = list_allowed_grants(catalogue, has_secrets=True)
    return {**progress, **{("SELECT", right.kind, right.name): right.columns for right in rights}}


def compressor_privileges() -> AllowedPrivileges:
    """Return the privileges that the compressor needs."""
    return {(privilege, "table", name): columns for privilege, name, columns in list_privileges()}


def examine(connection: Connection, allowed: AllowedPrivileges, script: str, subject: str = "role") -> Findings:
    """Find privileges of the current role beyond ``allowed``; the findings contain statements that revoke them.

    :param script: the command that prints the SQL of the role.
    """
    row = connection.execute(
        "select quote_ident(rolname), rolconnlimit, rolsuper from pg_roles where rolname = current_user"
    ).fetchone()
    assert row is not None
    role, connections, is_superuser = row
    tables = sorted({name for _, kind, name in allowed if kind == "table"})
    # The compressor may have created its progress tables.
    owned = [name for name in _column(connection, _OWNED) if name not in PROGRESS_TABLES]
    findings = [
        *_attributes(role, _column(connection, _ATTRIBUTES, [tables]), script),
        *_memberships(role, _column(connection, _MEMBER_OF)),
        *_ownership(role, owned, script),
        *_grants(role, connection.execute(_GRANTED.encode()).fetchall(), allowed, script),
    ]
    if not is_superuser:
        findings += _definers(role, _column(connection, _DEFINERS))
        findings += _public_rights(role, connection, script)
        findings += system_grants.examine(role, connection)
    findings = findings or [
        DoctorFinding(FindingLevel.OK, subject, f"{role} has exactly the privileges that the lakehouse needs")
    ]
    findings.append(_limits(role, connections, _column(connection, _DATABASES)))
    yield from (replace(finding, subject=subject) for finding in findings)


def _attributes(role: str, attributes: Sequence[str], script: str) -> Findings:
    if "SUPERUSER" in attributes:
        message = f"The role {role} is a superuser: it can read and write everything."
        yield DoctorFinding(FindingLevel.WARN, "role", message, _OWN_ROLE.format(script=script))
    elif attributes:
        message = f"The role {role} has {' and '.join(attributes)}, which it does not need."
        removal = " ".join(f"NO{attribute}" for attribute in attributes)
        yield DoctorFinding(FindingLevel.WARN, "role", message, f"As a superuser run: ALTER ROLE {role} {removal};")


def _memberships(role: str, roles: Sequence[str]) -> Findings:
    if roles:
        message = f"The role {role} is a member of {_list_some(roles)} and has their privileges."
        yield DoctorFinding(
            FindingLevel.WARN, "role", message, f"As a superuser run: REVOKE {', '.join(roles)} FROM {role};"
        )


def _ownership(role: str, owned: Sequence[str], script: str) -> Findings:
    if owned:
        message = f"The role {role} owns {_list_some(owned)}: an owner has all privileges."
        yield DoctorFinding(FindingLevel.WARN, "role", message, _OWN_ROLE.format(script=script))


def _grants(role: str, granted: Iterable[tuple[Any, ...]], allowed: AllowedPrivileges, script: str) -> Findings:
    """Yield one finding for each privilege, kind of object and grantee."""
    needed_privileges = {privilege for privilege, *_ in allowed}
    excess_by_kind: dict[tuple[str, str, bool], list[_Excess]] = {}
    for kind, name, columns, is_whole, privilege, is_public in granted:
        excess_columns = () if is_whole else tuple(columns)
        if (privilege, kind, name) in allowed:
            needed = allowed[privilege, kind, name]
            excess_columns = tuple(column for column in columns if needed is not None and column not in needed)
            if not excess_columns:
                continue
        excess = excess_by_kind.setdefault((privilege, kind, is_public), [])
        if not is_whole and excess and not excess[-1].is_whole and excess[-1].name == name:
            excess_columns = (*excess.pop().columns, *excess_columns)
        excess.append(_Excess(kind, name, excess_columns, is_whole))
    for (privilege, kind, is_public), excess in excess_by_kind.items():
        right = f"{privilege}, which it does not need," if privilege in needed_privileges else privilege
        message = f"The role {role}{', like every role,' * is_public} has {right} on {kind} {_list_some(excess)}."
        advice = f"As the owner run: {' '.join(_revokes(privilege, excess, 'PUBLIC' if is_public else role))}"
        if privilege in needed_privileges:
            advice += f" Then grant the needed privileges: `{script}` prints the SQL."
        elif kind == "schema" and is_public:
            advice = f"First grant the same privilege to Synapse's role, which needs it. {advice}"
        yield DoctorFinding(FindingLevel.WARN, "role", message, advice)


def _definers(role: str, routines: Sequence[str]) -> Findings:
    if routines:
        message = (
            f"The role {role} may execute {_list_some(routines)} with the privileges of the owner (SECURITY DEFINER)."
        )
        advice = "First grant EXECUTE to roles that need it. "
        advice += f"As the owner run: REVOKE EXECUTE ON ROUTINE {', '.join(routines)} FROM PUBLIC, {role};"
        yield DoctorFinding(FindingLevel.WARN, "role", message, advice)


def _public_rights(role: str, connection: Connection, script: str) -> Findings:
    """Yield one finding for the default privileges of PUBLIC that hardening revokes."""
    row = connection.execute(
        ("select " + ", ".join(right.is_allowed_sql for right in PUBLIC_RIGHTS)).encode()
    ).fetchone()
    assert row is not None
    if actions := [right.action for right, is_allowed in zip(PUBLIC_RIGHTS, row, strict=True) if is_allowed]:
        message = f"The role {role}, like every role, may {' and '.join(actions)} in this database."
        advice = f"`{script} --harden` prints statements that revoke these rights, with their side effects."
        yield DoctorFinding(FindingLevel.WARN, "role", message, advice)


def _limits(role: str, connections: int, databases: Sequence[str]) -> DoctorFinding:
    """Report the limits of the role: enforced limits, limits that it can change, and other databases."""
    bounded = f"its privileges and {connections} connections" if connections >= 0 else "its privileges"
    message = f"For the role {role} PostgreSQL enforces {bounded}. The role can change its timeouts and read-only mode."
    if databases:
        message += f" The role may also connect to {_list_some(databases)}; this check cannot see its privileges there."
    return DoctorFinding(FindingLevel.OK, "role", message)


def _revokes(privilege: str, excess: Sequence[_Excess], role: str) -> Iterator[str]:
    kind = "" if excess[0].kind == "table" else f"{excess[0].kind.upper()} "
    if whole_tables := [item.name for item in excess if item.is_whole]:
        yield f"REVOKE {privilege} ON {kind}{', '.join(whole_tables)} FROM {role};"
    for item in excess:
        if not item.is_whole:
            yield f"REVOKE {privilege} ({', '.join(item.columns)}) ON {item.name} FROM {role};"


def _list_some(items: Sequence[_Excess] | Sequence[str]) -> str:
    names = [item if isinstance(item, str) else item.label for item in items]
    omitted = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {omitted} more" if omitted > 0 else "")


def _column(connection: Connection, query: str, parameters: Sequence[Any] | None = None) -> list[str]:
    return [str(value) for (value,) in connection.execute(query.encode(), parameters)]
